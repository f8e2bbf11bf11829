// voxloom synth scroll|dose|mitochondria OUTPUT --count N --size Z,Y,X --seed S [--format F] [--thickness T]
#include "synth/synth.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "base/text.h"
#include "base/thread_pool.h"
#include "cli/command.h"
#include "io/format.h"

namespace vox::cli {
namespace {

struct Arguments {
  std::string kind, output, format = "tiff";
  int64_t count = 4;
  std::vector<int64_t> size{128, 128, 128};
  uint64_t seed = 0;
  double thickness = 1;
};

std::string suffix_of(const std::string& format, const std::string& kind) {
  std::vector<std::string> known;
  if (kind == "dose") {
    if (format == "openkbp") return "";
    known.push_back("openkbp");
  }
  for (const FormatEntry& entry : all_formats()) {
    if (!entry.write) continue;
    if (entry.name == format) return entry.suffixes.front();
    for (const std::string& suffix : entry.suffixes)
      if (suffix == "." + format) return suffix;
    known.push_back(entry.name);
  }
  throw Error(concat("unknown format \"", format, "\" to write; known: ", join(known, ", ")));
}

void run(const Arguments& arguments) {
  VOX_CHECK(arguments.size.size() == 1 || arguments.size.size() == 3, "--size takes one number or three (z,y,x), not ",
            arguments.size.size());
  const auto& size = arguments.size;
  ThreadPool pool(available_cpus());
  make_synthetic(arguments.kind,
                 {.folder = arguments.output,
                  .count = arguments.count,
                  .size = size.size() == 1 ? Extent3{size[0], size[0], size[0]} : Extent3{size[0], size[1], size[2]},
                  .seed = arguments.seed,
                  .thickness = arguments.thickness,
                  .suffix = suffix_of(arguments.format, arguments.kind)},
                 pool);
  std::cout << "made " << arguments.count << (arguments.count == 1 ? " case" : " cases") << " of " << arguments.kind
            << " in " << arguments.output << '\n';
}

void define(CLI::App& command) {
  auto arguments = std::make_shared<Arguments>();
  command.add_option("kind", arguments->kind, "scroll, dose or mitochondria")->required();
  command.add_option("output", arguments->output, "folder to fill")->required();
  command.add_option("--count", arguments->count, "how many volumes")->check(CLI::PositiveNumber);
  command.add_option("--size", arguments->size, "Z,Y,X in voxels")->delimiter(',')->allow_extra_args(false);
  command.add_option("--seed", arguments->seed, "which data");
  command.add_option("--thickness", arguments->thickness,
                     "of a section of mitochondria, in widths of a voxel: 6 is 30 nm sections of 5 nm pixels");
  command.add_option("--format", arguments->format,
                     "format of the volumes, or a suffix such as nii.gz; for dose also openkbp");
  command.callback([arguments] { run(*arguments); });
}

}  // namespace

CommandEntry synth_command() {
  return {"synth", "Make synthetic data: scroll, dose or mitochondria", define};
}

}  // namespace vox::cli
