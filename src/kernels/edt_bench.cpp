// Thin curved sheets of 128^3, and their complement: short and long distances.
#include <benchmark/benchmark.h>

#include <cmath>
#include <vector>

#include "kernels/edt.h"

namespace vox {
namespace {

constexpr Extent3 kExtent{128, 128, 128};

std::vector<uint8_t> sheets(bool complement) {
  std::vector<uint8_t> mask(static_cast<size_t>(kExtent.voxels()));
  for (int64_t i = 0; i < kExtent.voxels(); ++i) {
    const double z = static_cast<double>(i / (128 * 128)), y = static_cast<double>(i / 128 % 128);
    const double x = static_cast<double>(i % 128);
    const double field = std::sin(z * 0.17 + y * 0.05) + std::sin(y * 0.13 + x * 0.07) + std::sin(x * 0.19 - z * 0.06);
    mask[static_cast<size_t>(i)] = (std::abs(field) < 0.15) != complement;
  }
  return mask;
}

void edt(benchmark::State& state, bool complement, EdtOptions options) {
  const std::vector<uint8_t> mask = sheets(complement);
  std::vector<float> squared(mask.size());
  for (auto _ : state) {
    edt_squared_cpu(squared.data(), mask.data(), kExtent, options);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * kExtent.voxels());
}
BENCHMARK_CAPTURE(edt, sheets, false, EdtOptions{})->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(edt, complement, true, EdtOptions{})->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(edt, complement_to_3_mm, true, EdtOptions{.limit_mm = 3})->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace vox
