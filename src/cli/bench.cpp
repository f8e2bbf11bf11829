// voxloom bench: measurements of this build on this machine. Each benchmark is one line in the table below; with
// --json it prints a list of {name, median_ms, spread_ms, ...}. Peers run beside it from the drivers in bench/.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/random.h"
#include "base/span.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "cli/bench.h"
#include "cli/command.h"
#include "cli/json_text.h"
#include "io/format.h"
#include "train/learner.h"

namespace vox::cli {

using nlohmann::json;

json timing_summary(const std::string& name, std::vector<double> milliseconds) {
  std::sort(milliseconds.begin(), milliseconds.end());
  const size_t count = milliseconds.size();
  const double median = (milliseconds[(count - 1) / 2] + milliseconds[count / 2]) / 2;
  const double spread = milliseconds[count - 1 - count / 4] - milliseconds[count / 4];  // between the quartiles
  return {{"name", name}, {"median_ms", median}, {"spread_ms", spread}, {"repeats", count}};
}

namespace {
json* collected = nullptr;  // where `voxloom bench` alone gathers what its benchmarks found
}

void print_results(const json& results, bool as_json) {
  if (as_json && collected != nullptr) {
    collected->insert(collected->end(), results.begin(), results.end());
    return;
  }
  if (as_json) {
    std::cout << json_text(results);
    return;
  }
  for (const json& result : results) {
    std::cout << result["name"].get<std::string>() << "  " << format_number(result["median_ms"], 2) << " ms  (spread "
              << format_number(result["spread_ms"], 2) << " ms)";
    if (result.contains("mb_per_s")) std::cout << "  " << format_number(result["mb_per_s"], 0) << " MB/s";
    std::cout << '\n';
  }
}

namespace {

struct IoOptions {
  std::vector<std::string> paths;
  int threads = 0, repeats = 5;
  std::vector<int64_t> box;  // empty: the whole volume
  int64_t count = 16;        // boxes a time
  uint64_t seed = 0;
  bool as_json = false;
};

// Begins of boxes that lie anywhere in the volume; they depend on nothing but the seed and the extent.
std::vector<Extent3> box_begins(const Extent3& extent, const Extent3& box, const IoOptions& options) {
  Random random(options.seed, 0, 0);
  std::vector<Extent3> begins;
  for (int64_t i = 0; i < options.count; ++i) {
    Extent3 begin;
    for (int axis = 0; axis < 3; ++axis) begin[axis] = random.below(extent[axis] - box[axis] + 1);
    begins.push_back(begin);
  }
  return begins;
}

json time_boxes(const std::string& path, const IoOptions& options) {
  VOX_CHECK(options.box.size() == 3, "--box takes three numbers (z,y,x), not ", options.box.size());
  const Extent3 wanted{options.box[0], options.box[1], options.box[2]};
  ThreadPool pool(options.threads > 0 ? options.threads : available_cpus());
  std::vector<double> milliseconds;
  std::vector<Extent3> begins;
  int64_t bytes = 0;
  for (int i = 0; i < options.repeats; ++i) {
    const Clock::time_point start = Clock::now();
    const auto reader = open_volume(path);
    const Extent3 box = min(wanted, reader->info().extent);
    begins = box_begins(reader->info().extent, box, options);
    Buffer out(box.voxels() * size_of(reader->info().dtype));
    for (const Extent3& begin : begins) reader->read({begin, begin + box}, 0, out.data(), &pool);
    milliseconds.push_back(1e3 * seconds_since(start));
    bytes = out.size() * options.count;
  }
  json result = timing_summary(concat("boxes of ", path), milliseconds);
  result["threads"] = pool.size();
  result["bytes"] = bytes;
  result["mb_per_s"] = static_cast<double>(bytes) / 1e3 / result["median_ms"].get<double>();
  result["begins"] = json::array();
  for (const Extent3& begin : begins) result["begins"].push_back({begin.z, begin.y, begin.x});
  return result;
}

json time_reading(const std::string& path, const IoOptions& options) {
  ThreadPool pool(options.threads > 0 ? options.threads : available_cpus());
  std::vector<double> milliseconds;
  int64_t bytes = 0;
  for (int i = 0; i < options.repeats; ++i) {
    const Clock::time_point start = Clock::now();
    const Volume volume = read_volume(path, &pool);
    milliseconds.push_back(1e3 * seconds_since(start));
    bytes = volume.data.size();
  }
  json result = timing_summary(concat("read ", path), milliseconds);
  result["threads"] = pool.size();
  result["bytes"] = bytes;
  result["mb_per_s"] = static_cast<double>(bytes) / 1e3 / result["median_ms"].get<double>();
  return result;
}

void define_io(CLI::App& command) {
  auto options = std::make_shared<IoOptions>();
  command.add_option("path", options->paths, "Volumes to read, each opened and read whole every time")->required();
  command.add_option("--box", options->box, "Z,Y,X: read boxes of this size at random places, not the whole")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::PositiveNumber);
  command.add_option("--count", options->count, "Boxes to read every time")->check(CLI::PositiveNumber);
  command.add_option("--seed", options->seed, "Where the boxes lie");
  command.add_option("--threads", options->threads, "Threads that decode; 0: all there are")
      ->check(CLI::Range(0, 1024));
  command.add_option("--repeats", options->repeats, "Times each is read")->check(CLI::Range(1, 100000));
  command.add_flag("--json", options->as_json, "One JSON document on standard output");
  command.callback([options] {
    json results = json::array();
    for (const std::string& path : options->paths)
      results.push_back(options->box.empty() ? time_reading(path, *options) : time_boxes(path, *options));
    print_results(results, options->as_json);
  });
}

const std::vector<CommandEntry>& all_benchmarks() {
  static const std::vector<CommandEntry> entries{
      {"augment", "Augmenting patches of a volume in memory, on one core", define_bench_augment},
      {"data", "The data path of a recipe: patches a second, memory, hash", define_bench_data},
      {"gather", "Rotating and scaling a patch, on one core", define_bench_gather},
      {"infer", "Sliding windows over a volume in memory", define_bench_infer},
      {"io", "Reading volumes from files", define_io},
      {"loss", "Forward and backward of each loss term, and its memory", define_bench_loss},
      {"openkbp", "OpenKBP patients, CSV to compact form", define_bench_openkbp},
      {"step", "A training step without its data path", define_bench_step},
  };
  return entries;
}

struct AloneOptions {
  bool as_json = false;
  std::string device;
};

// What needs no files, small enough for any machine.
void run_alone(const AloneOptions& options) {
  choose_device(options.device, SystemOptions{});  // a wrong one is known before anything is measured
  const std::string device = options.device.empty() ? "" : " --device " + options.device;
  const std::vector<std::pair<std::string, std::string>> small{
      {"augment", "augmentation.preset=nnunet data.patch_size=48,48,48 --repeats 5"},
      {"gather", "--size 48 --repeats 5"},
      {"loss", "--size 24,24,24 --repeats 3" + device},
      {"step", "data.patch_size=16,16,16 data.batch_size=1 model.filters=4,8 --steps 5 --warm-up 1" + device}};
  json all = json::array();
  collected = &all;
  for (const CommandEntry& entry : all_benchmarks())
    for (const auto& [name, arguments] : small) {
      if (name != entry.name) continue;
      CLI::App benchmark(entry.help, name);
      entry.define(benchmark);
      benchmark.parse(arguments + (options.as_json ? " --json" : ""));
    }
  collected = nullptr;
  if (options.as_json) print_results(all, true);
  std::cerr << "data, infer, io and openkbp read files of yours: `voxloom bench io FILE`; --help lists options\n";
}

void define(CLI::App& command) {
  auto options = std::make_shared<AloneOptions>();
  command.require_subcommand(0, 1);
  CLI::Option* json_flag = command.add_flag("--json", options->as_json, "Without a name: one JSON document of all");
  CLI::Option* device = command.add_option("--device", options->device,
                                           "Without a name: cpu, cuda or cuda:N; without it a GPU where there is one");
  for (const CommandEntry& entry : all_benchmarks()) {
    CLI::App* part = command.add_subcommand(entry.name, entry.help);
    entry.define(*part);
    part->excludes(json_flag)->excludes(device);  // its own stand behind its name
  }
  command.callback([&command, options] {
    if (command.get_subcommands().empty()) run_alone(*options);
  });
}

}  // namespace

CommandEntry bench_command() {
  return {"bench", "Measure this build on this machine", define};
}

}  // namespace vox::cli
