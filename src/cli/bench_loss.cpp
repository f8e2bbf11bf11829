// voxloom bench loss [TERM[:key=value,...][+TERM...] ...]: forward and backward of loss terms, and the memory they
// take.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "cli/bench.h"
#include "config/config.h"
#include "losses/loss.h"
#include "measure/loss_timing.h"
#include "train/learner.h"

namespace vox::cli {
namespace {

using nlohmann::json;

struct Arguments {
  std::vector<std::string> terms;
  std::vector<int64_t> size;
  LossBenchRequest request;
  bool as_json = false;
};

// "cldice:iterations=5,erosion=cube" as a recipe would say it.
LossTerm parse_term(const std::string& word) {
  const size_t colon = word.find(':');
  std::string yaml = "loss: {terms: [{name: " + word.substr(0, colon);
  if (colon != std::string::npos)
    for (const std::string& option : split(word.substr(colon + 1), ',')) {
      const size_t equal = option.find('=');
      VOX_CHECK(equal != std::string::npos, "\"", word, "\": expected TERM:key=value,key=value");
      yaml += ", " + option.substr(0, equal) + ": " + option.substr(equal + 1);
    }
  return parse_config(yaml + "}]}", ".").options.loss.terms.front();
}

json measure_term(const std::string& word, const Arguments& arguments) {
  LossBenchRequest request = arguments.request;
  for (const std::string& term : split(word, '+')) request.terms.push_back(parse_term(term));
  const LossBenchResult result = bench_loss(request);
  json row = timing_summary(word, result.both_ms);
  row["forward_ms"] = timing_summary(word, result.forward_ms)["median_ms"];
  row["backward_ms"] = std::max(0.0, row["median_ms"].get<double>() - row["forward_ms"].get<double>());
  if (!result.eager_ms.empty()) row["eager_ms"] = timing_summary(word, result.eager_ms)["median_ms"];
  row["extra_mb"] = static_cast<double>(result.extra_bytes) / 1e6;
  const double voxels = static_cast<double>(request.batch * request.channels * request.size.voxels());
  row["extra_bytes_per_voxel"] = static_cast<double>(result.extra_bytes) / voxels;
  row["value"] = result.value;
  return row;
}

void run(Arguments arguments) {
  VOX_CHECK(arguments.size.empty() || arguments.size.size() == 3, "--size takes three numbers (z,y,x), not ",
            arguments.size.size());
  if (!arguments.size.empty()) arguments.request.size = {arguments.size[0], arguments.size[1], arguments.size[2]};
  choose_device(arguments.request.device, SystemOptions{});  // a wrong one is one message, and not one of each loss
  const bool every = arguments.terms.empty();
  if (every)
    for (const LossEntry& entry : all_losses()) arguments.terms.push_back(entry.name);
  json rows = json::array();
  for (const std::string& word : arguments.terms) {
    try {
      rows.push_back(measure_term(word, arguments));
    } catch (const Error& error) {  // asked for by name it must work; among all it is left out, and said so
      if (!every || error.fault() != Fault::kInput) throw;
      std::cerr << "left out " << word << ": " << error.what() << '\n';
      continue;
    }
    if (arguments.as_json) continue;
    const json& row = rows.back();
    std::cout << word << "  " << format_number(row["median_ms"], 3) << " ms  (spread "
              << format_number(row["spread_ms"], 3) << " ms, forward " << format_number(row["forward_ms"], 3) << " ms";
    if (row.contains("eager_ms")) std::cout << ", launched one by one " << format_number(row["eager_ms"], 3) << " ms";
    std::cout << ")  " << format_number(row["extra_mb"], 1) << " MB extra" << std::endl;
  }
  if (arguments.as_json) print_results(rows, true);
}

}  // namespace

void define_bench_loss(CLI::App& command) {
  auto arguments = std::make_shared<Arguments>();
  command.add_option(
      "terms", arguments->terms,
      "losses, TERM or TERM:key=value,key=value, or several joined by + as a recipe would; absent: each one. On a "
      "GPU the time is that of a captured graph, as steps replay it (a term that reads back: the wall "
      "clock), beside that of launching kernels one by one");
  command.add_option("--size", arguments->size, "Z,Y,X of a patch")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1, 65536));
  command.add_option("--batch", arguments->request.batch, "patches")->check(CLI::PositiveNumber);
  command.add_option("--channels", arguments->request.channels, "channels of the output")->check(CLI::PositiveNumber);
  command.add_option("--repeats", arguments->request.repeats, "times each is computed")->check(CLI::PositiveNumber);
  command.add_option("--warm-up", arguments->request.warm_up, "times before the clock starts")
      ->check(CLI::Range(1, 1000));
  command.add_option("--threads", arguments->request.threads, "torch's own threads; 0: all there are")
      ->check(CLI::Range(0, 1024));
  command.add_option("--device", arguments->request.device, "cpu, cuda or cuda:N; without it a GPU where there is one");
  command.add_flag("--json", arguments->as_json, "one JSON document on standard output");
  command.callback([arguments] { run(*arguments); });
}

}  // namespace vox::cli
