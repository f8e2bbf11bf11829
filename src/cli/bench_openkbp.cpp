// voxloom bench openkbp: from the sparse CSV files of patients to their compact form, one patient a thread.
#include <time.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/span.h"
#include "base/thread_pool.h"
#include "cli/bench.h"
#include "io/openkbp.h"

namespace vox::cli {
namespace {

using nlohmann::json;

struct Options {
  std::vector<std::string> folders;
  int threads = 1, repeats = 5;
  bool as_json = false;
};

double thread_cpu_ms() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

// Every patient into memory of its own, as a run keeps them; what a patient takes counts only where one thread works.
json time_all(const Options& options) {
  ThreadPool pool(options.threads);
  std::vector<OpenKbpPatient> patients;
  for (size_t i = 0; i < options.folders.size(); ++i) patients.push_back(allocate_openkbp());
  std::vector<double> milliseconds, cpu_milliseconds;
  for (int repeat = 0; repeat <= options.repeats; ++repeat) {
    const Clock::time_point start = Clock::now();
    const double cpu_start = thread_cpu_ms();
    pool.for_each(static_cast<int64_t>(patients.size()), [&](int64_t i) {
      read_openkbp(options.folders[static_cast<size_t>(i)], &patients[static_cast<size_t>(i)]);
    });
    if (repeat == 0) continue;  // it touches the memory
    milliseconds.push_back(1e3 * seconds_since(start));
    cpu_milliseconds.push_back(thread_cpu_ms() - cpu_start);
  }
  json result = timing_summary("openkbp patients", milliseconds);
  result["patients"] = patients.size();
  result["threads"] = pool.size();
  result["ms_per_patient"] = result["median_ms"].get<double>() / static_cast<double>(patients.size());
  if (pool.size() == 1) result["cpu_ms"] = timing_summary("", cpu_milliseconds)["median_ms"];
  return result;
}

}  // namespace

void define_bench_openkbp(CLI::App& command) {
  auto options = std::make_shared<Options>();
  command.add_option("folder", options->folders, "Patient folders (pt_N)")->required();
  command.add_option("--threads", options->threads, "Threads, one patient each")->check(CLI::Range(1, 1024));
  command.add_option("--repeats", options->repeats, "Times all are read")->check(CLI::Range(1, 100000));
  command.add_flag("--json", options->as_json, "One JSON document on standard output");
  command.callback([options] { print_results(json::array({time_all(*options)}), options->as_json); });
}

}  // namespace vox::cli
