// Maps of 128^3 that hold porous curved sheets: as a mask, and as a noisy probability.
#include <benchmark/benchmark.h>

#include <cmath>
#include <vector>

#include "base/random.h"
#include "kernels/persistence_matching.h"

namespace vox {
namespace {

constexpr Extent3 kExtent{128, 128, 128};

double sheets(int64_t i) {  // positive inside
  const double z = static_cast<double>(i / (128 * 128)), y = static_cast<double>(i / 128 % 128);
  const double x = static_cast<double>(i % 128);
  return 0.15 - std::abs(std::sin(z * 0.17 + y * 0.05) + std::sin(y * 0.13 + x * 0.07) + std::sin(x * 0.19 - z * 0.06));
}
float mask_at(int64_t i) {
  const Random random(0, 0, 0);
  return sheets(i) > 0 && random.bits_at(static_cast<uint32_t>(i)) >> 26 != 0 ? 1.0f : 0.0f;
}
float probability_at(int64_t i) {
  const double noise = normal_from_bits(Random(0, 0, 0).bits_at(static_cast<uint32_t>(i)));
  return static_cast<float>(1 / (1 + std::exp(-6 * sheets(i) - noise)));
}

float smooth_at(int64_t i) {
  return static_cast<float>(1 / (1 + std::exp(-6 * sheets(i))));
}

void pairs(benchmark::State& state, float (*value_at)(int64_t), std::vector<int> dimensions) {
  std::vector<float> values(static_cast<size_t>(kExtent.voxels()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = value_at(static_cast<int64_t>(i));
  for (auto _ : state)
    for (const int dimension : dimensions)
      benchmark::DoNotOptimize(
          persistence_pairs_cpu(values.data(), kExtent, dimension, {.level = Level::kFalling}).data());
}
void matching(benchmark::State& state, float (*value_at)(int64_t), int dimension) {  // with the mask
  std::vector<float> map(static_cast<size_t>(kExtent.voxels())), mask(map.size());
  for (size_t i = 0; i < map.size(); ++i) {
    map[i] = value_at(static_cast<int64_t>(i));
    mask[i] = mask_at(static_cast<int64_t>(i));
  }
  for (auto _ : state)
    benchmark::DoNotOptimize(
        match_persistence_cpu(map.data(), mask.data(), kExtent, dimension, Level::kFalling).matches.data());
}
BENCHMARK_CAPTURE(pairs, mask_0_and_2, mask_at, {0, 2})->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(pairs, noisy_0_and_2, probability_at, {0, 2})->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(pairs, mask_1, mask_at, {1})->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(pairs, noisy_1, probability_at, {1})->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(matching, components, probability_at, 0)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(matching, tunnels, probability_at, 1)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(matching, tunnels_smooth, smooth_at, 1)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(matching, cavities, probability_at, 2)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace vox
