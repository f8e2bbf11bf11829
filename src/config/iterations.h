// training.iterations_per_epoch: a number of steps, `auto`, or a duration such as 6h, 90m, 30s.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace vox {

struct Iterations {  // both empty: auto
  std::optional<int64_t> steps;
  std::optional<double> seconds;
};

std::optional<Iterations> read_iterations(const std::string& text);  // empty: not one of these
Iterations parse_iterations(const std::string& text);                // of a checked option

}  // namespace vox
