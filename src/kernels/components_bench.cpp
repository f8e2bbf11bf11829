// Thin curved sheets of 128^3, each connectivity, as a mask and as labels.
#include <benchmark/benchmark.h>

#include <cmath>
#include <vector>

#include "kernels/components.h"

namespace vox {
namespace {

constexpr Extent3 kExtent{128, 128, 128};

std::vector<uint8_t> sheets() {
  std::vector<uint8_t> mask(static_cast<size_t>(kExtent.voxels()));
  for (int64_t i = 0; i < kExtent.voxels(); ++i) {
    const double z = static_cast<double>(i / (128 * 128)), y = static_cast<double>(i / 128 % 128);
    const double x = static_cast<double>(i % 128);
    const double field = std::sin(z * 0.17 + y * 0.05) + std::sin(y * 0.13 + x * 0.07) + std::sin(x * 0.19 - z * 0.06);
    mask[static_cast<size_t>(i)] = std::abs(field) < 0.15;
  }
  return mask;
}

void binary(benchmark::State& state, Connectivity connectivity) {
  const std::vector<uint8_t> mask = sheets();
  std::vector<uint32_t> labels(mask.size());
  for (auto _ : state) benchmark::DoNotOptimize(components_cpu(labels.data(), mask.data(), kExtent, connectivity));
  state.SetItemsProcessed(state.iterations() * kExtent.voxels());
}
void multi_label(benchmark::State& state, Connectivity connectivity) {
  const std::vector<uint8_t> mask = sheets();
  std::vector<uint32_t> labels(mask.size());
  for (auto _ : state)
    benchmark::DoNotOptimize(label_components_cpu(labels.data(), mask.data(), kExtent, connectivity));
  state.SetItemsProcessed(state.iterations() * kExtent.voxels());
}
BENCHMARK_CAPTURE(binary, faces, Connectivity::kFaces)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(binary, edges, Connectivity::kEdges)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(binary, corners, Connectivity::kCorners)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(multi_label, corners, Connectivity::kCorners)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace vox
