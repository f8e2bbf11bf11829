// voxloom train CONFIG [key=value ...]: parses, trains, prints how it ended.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/check_recipe.h"
#include "cli/command.h"
#include "cli/commit.h"
#include "cli/layer_table.h"
#include "cli/make_data.h"
#include "cli/shell_word.h"
#include "nets/registry.h"
#include "report/run_folder.h"
#include "train/follower.h"
#include "train/learner.h"
#include "train/predict_run.h"
#include "train/signals.h"
#include "train/trainer.h"

namespace vox::cli {
namespace {

constexpr const char* kRehearsalFlag = "--fast-dev-run{10}";  // steps where no number is given

struct Arguments {
  std::vector<std::string> words;  // the recipe, overrides, and a number that follows --fast-dev-run
  std::string run, resume = "auto", device, export_folder, follow;
  std::string rehearsal;  // steps of --fast-dev-run; empty: a real run
  bool predict_only = false, dry_run = false, force = false;
};

struct Words {
  std::string config;
  std::vector<std::string> overrides;
  int64_t rehearsal = 0;
};

bool is_number(const std::string& word) {
  return !word.empty() && word.size() < 10 &&
         std::all_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// --fast-dev-run takes the next word only if it is an integer, which CLI11 cannot say: so it sorts the words itself.
Words sort_words(const Arguments& arguments) {
  Words sorted;
  if (!arguments.rehearsal.empty()) {
    if (!is_number(arguments.rehearsal))
      throw CLI::ValidationError("--fast-dev-run", "\"" + arguments.rehearsal + "\" is no number of steps");
    sorted.rehearsal = std::max<int64_t>(1, std::stoll(arguments.rehearsal));
  }
  for (const std::string& word : arguments.words) {
    if (sorted.rehearsal > 0 && is_number(word) && !path_exists(word))
      sorted.rehearsal = std::max<int64_t>(1, std::stoll(word));
    else if (word.find('=') != std::string::npos && !path_exists(word))
      sorted.overrides.push_back(word);
    else if (sorted.config.empty())
      sorted.config = word;
    else
      throw CLI::ParseError("\"" + word + "\" is neither the recipe nor key=value", CLI::ExitCodes::ExtrasError);
  }
  if (sorted.config.empty()) throw CLI::RequiredError("CONFIG");
  return sorted;
}

ResumeRequest resume_request(const Arguments& arguments) {
  ResumeRequest request{.mode = ResumeMode::kAuto, .file = {}, .force = arguments.force};
  if (arguments.resume == "never") request.mode = ResumeMode::kNever;
  if (arguments.resume != "never" && arguments.resume != "auto") {
    request.mode = ResumeMode::kFile;
    request.file = fs::is_directory(arguments.resume) ? fs::path(arguments.resume) : checkpoint_of(arguments.resume);
  }
  return request;
}

bool goes_on(const Arguments& arguments) {  // from a checkpoint
  if (arguments.resume != "auto") return arguments.resume != "never";
  return RunFolder::is_run(arguments.run) &&
         !CheckpointFolder(RunFolder::open(arguments.run).checkpoints()).newest_first().empty();
}

std::string command_line(const Arguments& arguments) {
  std::string line = "voxloom train";
  for (const std::string& word : arguments.words) line += " " + shell_word(word);
  if (!arguments.run.empty()) line += " --run " + shell_word(arguments.run);
  if (arguments.resume != "auto") line += " --resume " + shell_word(arguments.resume);
  if (!arguments.device.empty()) line += " --device " + arguments.device;
  if (arguments.force) line += " --force";
  return line;
}

void print_rehearsal(const RehearsalReport& report) {
  const double epoch_s = report.step_s * static_cast<double>(report.steps_per_epoch);
  const auto fit = [&](double hours) { return static_cast<int64_t>(hours * 3600 / report.step_s); };
  std::cout << "step   " << format_number(report.step_s * 1000, 1) << " ms (median of " << report.steps << "; first "
            << format_number(report.first_step_s * 1000, 1) << " ms; waiting for data "
            << format_number(report.data_wait_s * 1000, 1) << " ms)\n"
            << "epoch  " << human_seconds(epoch_s) << " (" << report.steps_per_epoch << " steps)\n"
            << "total  " << human_seconds(epoch_s * static_cast<double>(report.epochs)) << " (" << report.epochs
            << " epochs, without validation)\n"
            << "steps that fit: " << fit(1) << " in 1 h, " << fit(6) << " in 6 h, " << fit(24) << " in 24 h\n";
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::error_code problem;
    const fs::path folder = fs::temp_directory_path(problem);
    std::string name = (folder / "voxloom-fast-dev-run-XXXXXX").string();
    VOX_CHECK(!problem && mkdtemp(name.data()), "cannot make a folder for temporary files; is TMPDIR one?");
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

void run_rehearsal(TrainRequest request, int64_t steps) {
  const TemporaryFolder folder;
  request.run = folder.path() / "run";
  request.resume.mode = ResumeMode::kNever;
  request.config.options.monitor.report = false;
  const RehearsalReport report = rehearse(request, steps);
  if (report.steps > 0) print_rehearsal(report);
  if (report.stop_signal != 0) throw Interrupted{report.stop_signal};
}

// Of a run's own settings prediction takes other values for these alone.
std::vector<std::string> overrides_of_prediction(const Words& words) {
  std::vector<std::string> overrides;
  for (const std::string& text : words.overrides)
    if (text.starts_with("inference.") || text.starts_with("data.") || text.starts_with("system."))
      overrides.push_back(text);
  return overrides;
}

void run_prediction(const Arguments& arguments, const Words& words, const Options& recipe) {
  VOX_CHECK(!arguments.run.empty(), "--predict-only predicts the validation cases of a run: name it with --run");
  predict_run({.model = arguments.run,
               .inputs = {},
               .split = "validation",
               .output = fs::path(arguments.run) / "predictions",
               .overlap = {},
               .threshold = {},
               .device = arguments.device,
               .say = [](const std::string& line) { std::cerr << line << '\n'; },
               .window = {},
               .also = {},
               .overrides = overrides_of_prediction(words),
               .recipe = &recipe});
  std::cout << "Predictions are in " << (fs::path(arguments.run) / "predictions").string() << '\n';
}

// All that a run would refuse before its first step, as far as the headers of the files tell.
void run_dry(const Config& config, const std::string& device) {
  const Options& options = config.options;
  // A recipe may be checked on another machine than it trains on; a device that is named is of this one.
  const std::string missing = device.empty() ? missing_gpus(options.system) : "";
  choose_device(missing.empty() ? device : "cpu", options.system);
  check_missing_data(options);
  const HeaderFacts headers = check_headers(options);
  const std::string table = layer_table_text(options, headers.image_channels, headers.training_bytes);
  for (const std::string& warning : config.warnings) std::cerr << "warning: " << warning << '\n';
  if (!missing.empty()) std::cerr << "warning: on this machine the run would be refused: " << missing << '\n';
  if (!headers.why_unknown.empty())
    std::cerr << "warning: there is no data yet that could be checked: " << headers.why_unknown << '\n';
  std::cout << to_yaml(options) << table;
}

void run(const Arguments& arguments) {
  const Words words = sort_words(arguments);
  TrainRequest request;
  request.config = load_config(words.config, words.overrides);
  Options checked = request.config.options;
  // They are in its checkpoints, and the file may be gone; a process of a team is told where they are by its first.
  if (goes_on(arguments) || !arguments.follow.empty()) checked.model.weights.clear();
  check_settings(checked);  // what is wrong is said now, not after the data was read or days of training
  for (const auto& [key, reason] : ignored_model_options(request.config.options.model))
    request.config.warnings.push_back(key + " has no effect: " + reason);
  if (!arguments.follow.empty()) return follow({request.config, arguments.follow, arguments.device});
  if (arguments.dry_run) return run_dry(request.config, arguments.device);
  if (!arguments.predict_only) choose_device(arguments.device, request.config.options.system);
  make_missing_data(request.config.options);
  if (arguments.predict_only) return run_prediction(arguments, words, request.config.options);
  if (!RunFolder::is_run(arguments.run)) check_cases(request.config.options);  // a mistake leaves no run behind
  request.run = arguments.run;
  request.resume = resume_request(arguments);
  request.device = arguments.device;
  request.export_folder = arguments.export_folder;
  request.command = command_line(arguments);
  request.commit = VOX_COMMIT;
  if (words.rehearsal > 0) return run_rehearsal(request, words.rehearsal);
  const TrainOutcome outcome = train(request);
  std::cout << outcome.sentence << '\n';
  if (outcome.exit_status != 0) throw CLI::RuntimeError(outcome.exit_status);
}

void define(CLI::App& command) {
  auto arguments = std::make_shared<Arguments>();
  command.add_option("config", arguments->words, "CONFIG [key=value ...]: the recipe, and options to change in it")
      ->required()
      ->type_name("");
  command.add_option("--run", arguments->run, "the run's folder; without it a new runs/<config>-NNN");
  command.add_option("--resume", arguments->resume, "auto, never, or a checkpoint (or run) to go on from");
  command.add_flag(kRehearsalFlag, arguments->rehearsal,
                   "[N]: N real steps (10) in a temporary run, then what a step, an epoch and the whole run take");
  command.add_flag("--predict-only", arguments->predict_only, "no training: predict the run's validation cases");
  command.add_flag("--dry-run", arguments->dry_run,
                   "refuse what training would refuse; else print the resolved recipe and its layers");
  command.add_flag("--force", arguments->force, "go on though the configuration or the cases changed");
  command.add_option("--device", arguments->device, "cpu, cuda or cuda:N; without it a GPU where there is one");
  command.add_option("--export-batches", arguments->export_folder,
                     "also write every batch (.npy) and the first weights (.safetensors) to this folder");
  command.add_option("--follow", arguments->follow)->group("");  // of a process that another one starts
  command.callback([arguments] { run(*arguments); });
}

}  // namespace

CommandEntry train_command() {
  return {"train", "Train a recipe; stopped at any moment it goes on where it was", define};
}

}  // namespace vox::cli
