// Thin curved sheets of 128^3, each connectivity, as a mask and as labels.
#include <benchmark/benchmark.h>

#include <vector>

#include "kernels/bench_sheets.h"
#include "kernels/components.h"

namespace vox {
namespace {

constexpr Extent3 kExtent = kSheetsExtent;

void binary(benchmark::State& state, Connectivity connectivity) {
  const std::vector<uint8_t> mask = curved_sheets();
  std::vector<uint32_t> labels(mask.size());
  for (auto _ : state) benchmark::DoNotOptimize(components_cpu(labels.data(), mask.data(), kExtent, connectivity));
  state.SetItemsProcessed(state.iterations() * kExtent.voxels());
}
void multi_label(benchmark::State& state, Connectivity connectivity) {
  const std::vector<uint8_t> mask = curved_sheets();
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
