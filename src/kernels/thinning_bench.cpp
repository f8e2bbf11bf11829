// Thin curved sheets of 128^3: skeletons slice by slice and in three dimensions, the closing that follows, and three
// iterations of thinning that lets gradients through.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <vector>

#include "kernels/bench_sheets.h"
#include "kernels/morphology.h"
#include "kernels/soft_thinning.h"
#include "kernels/thinning.h"

namespace vox {
namespace {

constexpr Extent3 kExtent = kSheetsExtent;

template <class Work>
void measure(benchmark::State& state, Work work) {
  const std::vector<uint8_t> mask = curved_sheets();
  std::vector<uint8_t> out(mask.size());
  for (auto _ : state) {
    work(out.data(), mask.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * kExtent.voxels());
}
void slices(benchmark::State& state) {
  measure(state, [](uint8_t* out, const uint8_t* mask) { thin_2d_cpu(out, mask, kExtent); });
}
void volume(benchmark::State& state) {
  measure(state, [](uint8_t* out, const uint8_t* mask) { thin_3d_cpu(out, mask, kExtent); });
}
void closing(benchmark::State& state) {
  measure(state, [](uint8_t* out, const uint8_t* mask) { close_cpu(out, mask, kExtent); });
}
void subfields(benchmark::State& state) {
  std::vector<int16_t> taken(static_cast<size_t>(kExtent.voxels()));
  measure(state, [&](uint8_t*, const uint8_t* mask) { thin_by_subfields_cpu(taken.data(), mask, kExtent, 3); });
}
void subfields_backward(benchmark::State& state) {
  std::vector<int16_t> taken(static_cast<size_t>(kExtent.voxels()));
  thin_by_subfields_cpu(taken.data(), curved_sheets().data(), kExtent, 3);
  std::vector<double> grad(taken.size());
  measure(state, [&](uint8_t*, const uint8_t*) {
    std::fill(grad.begin(), grad.end(), 1.0);
    thin_by_subfields_backward_cpu(grad.data(), taken.data(), kExtent, 3);
  });
}
BENCHMARK(slices)->Unit(benchmark::kMillisecond);
BENCHMARK(volume)->Unit(benchmark::kMillisecond);
BENCHMARK(closing)->Unit(benchmark::kMillisecond);
BENCHMARK(subfields)->Unit(benchmark::kMillisecond);
BENCHMARK(subfields_backward)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace vox
