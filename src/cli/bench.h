// What the benchmarks of `voxloom bench` share.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace vox::cli {

// {name, median_ms, spread_ms (between the quartiles), repeats}
nlohmann::json timing_summary(const std::string& name, std::vector<double> milliseconds);
void print_results(const nlohmann::json& results, bool as_json);

void define_bench_augment(CLI::App& command);
void define_bench_data(CLI::App& command);
void define_bench_infer(CLI::App& command);
void define_bench_loss(CLI::App& command);
void define_bench_step(CLI::App& command);
void define_bench_openkbp(CLI::App& command);
void define_bench_gather(CLI::App& command);

}  // namespace vox::cli
