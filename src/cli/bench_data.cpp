// voxloom bench data CONFIG [key=value ...]: patches per second of a recipe's data path, and what its memory did.
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "base/thread_pool.h"
#include "cli/bench.h"
#include "cli/make_data.h"
#include "config/config.h"
#include "measure/data_timing.h"

namespace vox::cli {
namespace {

using nlohmann::json;

struct Arguments {
  std::string config;
  std::vector<std::string> overrides;
  DataBenchRequest request;
  bool as_json = false;
};

std::string hex(uint64_t value) {
  std::ostringstream out;
  out << std::hex << value;
  return out.str();
}

json to_json(const DataBenchResult& result, const Arguments& arguments) {
  json row = timing_summary("batch", result.batch_ms);
  row["patches_per_s"] = result.patches_per_s;
  row["threads"] = arguments.request.threads;
  row["open_s"] = result.open_s;
  row["rss_peak_gib"] = result.rss_peak_gib;
  row["rss_quarter_gib"] = result.rss_quarter_gib;
  row["rss_end_gib"] = result.rss_end_gib;
  const StoreCounts& counts = result.counts;
  row["store"] = {{"hits", counts.hits},
                  {"misses", counts.misses},
                  {"volumes_decoded", counts.volumes_decoded},
                  {"bytes_read", counts.bytes_read},
                  {"resident_peak_bytes", counts.resident_peak},
                  {"decode_s", counts.decode_s},
                  {"preprocess_s", counts.preprocess_s},
                  {"wait_s", counts.wait_s}};
  if (arguments.request.hash) {
    row["hash"] = hex(result.hash);
    for (const uint64_t hash : result.batch_hashes) row["batch_hashes"].push_back(hex(hash));
  }
  return json::array({row});
}

void run(const Arguments& arguments) {
  const Config config = load_config(arguments.config, arguments.overrides);
  make_missing_data(config.options);
  const DataBenchResult result = bench_data(config.options, arguments.request);
  print_results(to_json(result, arguments), arguments.as_json);
  if (arguments.as_json) return;
  std::cout << "  " << format_number(result.patches_per_s, 2) << " patches/s of " << config.options.data.patch_size
            << " with " << arguments.request.threads << " threads; opened in " << human_seconds(result.open_s)
            << "; resident memory at most " << format_number(result.rss_peak_gib, 2) << " GiB\n";
  if (arguments.request.hash) std::cout << "  hash " << hex(result.hash) << '\n';
}

}  // namespace

void define_bench_data(CLI::App& command) {
  auto arguments = std::make_shared<Arguments>();
  arguments->request.threads = available_cpus();
  command.add_option("config", arguments->config, "recipe")->required();
  command.add_option("overrides", arguments->overrides, "key=value ...");
  command.add_option("--batches", arguments->request.batches, "batches to time")->check(CLI::PositiveNumber);
  command.add_option("--warm-up", arguments->request.warm_up, "batches before the clock starts")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--first-step", arguments->request.first_step, "step to begin at")->check(CLI::NonNegativeNumber);
  command.add_option("--threads", arguments->request.threads, "threads of the pipeline")->check(CLI::Range(1, 1024));
  command.add_flag("--hash", arguments->request.hash, "hash every batch");
  command.add_flag("--json", arguments->as_json, "one JSON document on standard output");
  command.callback([arguments] { run(*arguments); });
}

}  // namespace vox::cli
