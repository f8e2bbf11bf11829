// Porous curved sheets of 128^3 and a displaced copy: Betti numbers, and what the two share.
#include <benchmark/benchmark.h>

#include <cmath>
#include <vector>

#include "base/random.h"
#include "kernels/betti.h"
#include "kernels/betti_matching.h"

namespace vox {
namespace {

constexpr Extent3 kExtent{128, 128, 128};

std::vector<uint8_t> sheets(double shift) {
  std::vector<uint8_t> mask(static_cast<size_t>(kExtent.voxels()));
  const Random random(0, 0, 0);
  for (int64_t i = 0; i < kExtent.voxels(); ++i) {
    const double z = static_cast<double>(i / (128 * 128)) + shift, y = static_cast<double>(i / 128 % 128);
    const double x = static_cast<double>(i % 128);
    const double field = std::sin(z * 0.17 + y * 0.05) + std::sin(y * 0.13 + x * 0.07) + std::sin(x * 0.19 - z * 0.06);
    mask[static_cast<size_t>(i)] = std::abs(field) < 0.15 && random.bits_at(static_cast<uint32_t>(i)) >> 26 != 0;
  }
  return mask;
}

void numbers(benchmark::State& state) {
  const std::vector<uint8_t> mask = sheets(0);
  for (auto _ : state) benchmark::DoNotOptimize(betti_numbers_cpu(mask.data(), kExtent));
}
void matching(benchmark::State& state) {
  const std::vector<uint8_t> p = sheets(0), g = sheets(0.7);
  for (auto _ : state) benchmark::DoNotOptimize(match_betti_cpu(p.data(), g.data(), kExtent));
}
BENCHMARK(numbers)->Unit(benchmark::kMillisecond);
BENCHMARK(matching)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace vox
