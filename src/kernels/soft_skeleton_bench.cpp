// Noisy curved sheets of 128^3: soft skeletons, forward and backward, on one thread.
#include <benchmark/benchmark.h>

#include <cmath>
#include <vector>

#include "base/random.h"
#include "kernels/soft_skeleton.h"

namespace vox {
namespace {

constexpr Extent3 kExtent{128, 128, 128};

std::vector<float> probability() {
  std::vector<float> values(static_cast<size_t>(kExtent.voxels()));
  const Random random(0, 0, 0);
  for (int64_t i = 0; i < kExtent.voxels(); ++i) {
    const double z = static_cast<double>(i / (128 * 128)), y = static_cast<double>(i / 128 % 128);
    const double x = static_cast<double>(i % 128);
    const double field = std::sin(z * 0.17 + y * 0.05) + std::sin(y * 0.13 + x * 0.07) + std::sin(x * 0.19 - z * 0.06);
    const double noise = normal_from_bits(random.bits_at(static_cast<uint32_t>(i)));
    values[static_cast<size_t>(i)] = static_cast<float>(1 / (1 + std::exp(6 * std::abs(field) - 2 - noise)));
  }
  return values;
}

void forward(benchmark::State& state, SoftSkeletonOptions options) {
  const std::vector<float> values = probability();
  std::vector<float> out(values.size());
  for (auto _ : state) {
    soft_skeleton_cpu(out.data(), values.data(), kExtent, options);
    benchmark::ClobberMemory();
  }
}
void backward(benchmark::State& state, SoftSkeletonOptions options) {
  const std::vector<float> values = probability(), weights(values.size(), 1.0f);
  std::vector<float> out(values.size());
  for (auto _ : state) {
    soft_skeleton_backward_cpu(out.data(), weights.data(), values.data(), kExtent, options);
    benchmark::ClobberMemory();
  }
}
constexpr SoftSkeletonOptions kCross{10, SoftErosion::kCross}, kCube{3, SoftErosion::kCube};
BENCHMARK_CAPTURE(forward, cross_10, kCross)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(backward, cross_10, kCross)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(forward, cube_3, kCube)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(backward, cube_3, kCube)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace vox
