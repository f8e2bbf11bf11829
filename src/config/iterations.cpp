#include "config/iterations.h"

#include "base/error.h"
#include "config/numbers.h"

namespace vox {
namespace {

constexpr int64_t kMostSteps = 9'000'000'000;  // so that those of all epochs can be counted

double seconds_of_unit(char unit) {
  switch (unit) {
    case 's':
      return 1;
    case 'm':
      return 60;
    case 'h':
      return 3600;
    case 'd':
      return 86400;
    default:
      return 0;
  }
}

}  // namespace

std::optional<Iterations> read_iterations(const std::string& text) {
  if (text == "auto") return Iterations{};
  if (const auto steps = read_integer(text)) {
    if (*steps < 1 || *steps > kMostSteps) return std::nullopt;
    return Iterations{.steps = *steps, .seconds = {}};
  }
  if (text.empty() || seconds_of_unit(text.back()) == 0) return std::nullopt;
  const auto amount = read_number(text.substr(0, text.size() - 1));
  if (!amount || *amount <= 0) return std::nullopt;
  return Iterations{.steps = {}, .seconds = *amount * seconds_of_unit(text.back())};
}

Iterations parse_iterations(const std::string& text) {
  const auto iterations = read_iterations(text);
  VOX_CHECK(iterations,
            "training.iterations_per_epoch: expected a whole number from 1 to 9e+09, auto, or a duration such as 6h, ",
            "90m or 30s, got \"", text, "\"");
  return *iterations;
}

}  // namespace vox
