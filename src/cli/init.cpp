// voxloom init FOLDER [--like nnunet] --output RECIPE.yaml [--force]: from a data folder to a commented recipe.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "cli/case_problems.h"
#include "cli/command.h"
#include "cli/shell_word.h"
#include "cli/writable.h"
#include "plan/recipe.h"

namespace vox::cli {
namespace {

struct Arguments {
  std::string folder, output, like;
  bool force = false;
};

void say_problems(const Layout& layout, const Fingerprint& print, const std::string& recipe) {
  constexpr size_t kMost = 10;
  std::vector<std::string> problems;
  for (size_t i = 0; i < layout.cases.size(); ++i) {
    const CasePrint& one = print.cases[i];
    for (const std::string& problem : problems_of(layout.cases[i], {one.minimum, one.maximum, one.label_counts}))
      problems.push_back(problem);
  }
  for (size_t i = 0; i < std::min(problems.size(), kMost); ++i) std::cerr << "problem: " << problems[i] << '\n';
  if (problems.size() > kMost)
    std::cerr << "problem: and " << problems.size() - kMost << " more; `voxloom inspect " << shell_word(recipe)
              << "` lists all\n";
}

void run(const Arguments& arguments) {
  VOX_CHECK(ends_with(arguments.output, ".yaml") || ends_with(arguments.output, ".yml"), "--output is ",
            arguments.output, "; a recipe is called NAME.yaml");
  VOX_CHECK(arguments.force || !fs::exists(arguments.output), arguments.output,
            " exists already; choose another --output, or replace it with --force");
  const Layout layout = find_layout(arguments.folder);
  require_writable(arguments.output);
  std::cerr << "reading " << layout.cases.size() << (layout.cases.size() == 1 ? " case" : " cases") << ", laid out as "
            << layout.title << '\n';
  ThreadPool pool(available_cpus());
  for (const std::string& remark : layout.remarks) std::cerr << "note: " << remark << '\n';
  const Fingerprint print = measure(layout, pool);
  const PlanStyle style = arguments.like == "nnunet" ? PlanStyle::kNnunet : PlanStyle::kVoxloom;
  write_file(arguments.output, plan_recipe({layout, print, style, arguments.output}));
  say_problems(layout, print, arguments.output);
  std::cout << "wrote " << arguments.output << "; next: voxloom train " << shell_word(arguments.output)
            << " --dry-run, then without\n";
}

void define(CLI::App& command) {
  auto arguments = std::make_shared<Arguments>();
  command
      .add_option("folder", arguments->folder, "the dataset: nnU-Net, MONAI, Vesuvius, OpenKBP, or images and labels")
      ->required();
  command.add_option("--output", arguments->output, "recipe to write, NAME.yaml")->required();
  command.add_option("--like", arguments->like, "follow the planning rules of another program")
      ->check(CLI::IsMember({"nnunet"}));
  command.add_flag("--force", arguments->force, "replace a recipe that exists");
  command.callback([arguments] { run(*arguments); });
}

}  // namespace

CommandEntry init_command() {
  return {"init", "From a folder of data to a recipe that says why", define};
}

}  // namespace vox::cli
