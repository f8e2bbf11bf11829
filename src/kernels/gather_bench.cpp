// One patch of 128^3 through a rotation by 20 degrees about each axis: every stored type, output and interpolation.
#include <benchmark/benchmark.h>

#include <cmath>
#include <vector>

#include "kernels/gather.h"
#include "kernels/noise.h"

namespace vox {
namespace {

constexpr Extent3 kPatch{128, 128, 128};

Volume noise_volume(DType dtype) {
  Volume volume = allocate_volume({.dtype = dtype, .extent = {208, 208, 208}});
  const Random random(0, 0, 0);
  with_type(dtype, [&](auto typed) {
    using T = decltype(typed);
    for (int64_t i = 0; i < volume.info.voxels(); ++i)
      volume.data.as<T>()[i] = static_cast<T>(random.bits_at(static_cast<uint32_t>(i)) >> 25);
  });
  return volume;
}

GatherMap turned() {
  const double c = std::cos(0.35), s = std::sin(0.35);
  const double m[3][3] = {{c * c, -c * s, s},
                          {s * c + c * s * s, c * c - s * s * s, -s * c},
                          {s * s - c * s * c, s * c + c * s * s, c * c}};
  GatherMap map;
  for (int row = 0; row < 3; ++row) {
    double first = 103.5;
    for (int column = 0; column < 3; ++column) {
      map.matrix[row][column] = static_cast<float>(m[row][column]);
      first -= m[row][column] * 63.5;
    }
    map.offset[row] = static_cast<float>(first);
  }
  return map;
}

void run(benchmark::State& state, DType stored, DType out, Interpolation interpolation, const GatherMap& map) {
  const Volume volume = noise_volume(stored);
  std::vector<float> patch(static_cast<size_t>(kPatch.voxels()));
  for (auto _ : state) {
    gather_cpu({.data = patch.data(), .dtype = out, .extent = kPatch}, view_of(volume), map,
               {.interpolation = interpolation});
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * kPatch.voxels());
}

void linear(benchmark::State& state, DType stored, DType out) {
  run(state, stored, out, Interpolation::kLinear, turned());
}
void nearest(benchmark::State& state, DType stored, DType out) {
  run(state, stored, out, Interpolation::kNearest, turned());
}
void copy(benchmark::State& state, DType stored, DType out) {
  run(state, stored, out, Interpolation::kLinear, {.origin = {40, 40, 40}});
}
void noise(benchmark::State& state) {
  std::vector<float> patch(static_cast<size_t>(kPatch.voxels()));
  for (auto _ : state) add_noise_cpu(patch.data(), kPatch.voxels(), 0.1f, Random(1, 2, 3), 0);
  state.SetItemsProcessed(state.iterations() * kPatch.voxels());
}

BENCHMARK_CAPTURE(linear, uint8_to_float32, DType::kUInt8, DType::kFloat32)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(linear, uint8_to_bfloat16, DType::kUInt8, DType::kBFloat16)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(linear, int16_to_float32, DType::kInt16, DType::kFloat32)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(linear, float32_to_float32, DType::kFloat32, DType::kFloat32)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(linear, float64_to_float32, DType::kFloat64, DType::kFloat32)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(nearest, uint8_to_uint8, DType::kUInt8, DType::kUInt8)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(copy, uint8_to_float32, DType::kUInt8, DType::kFloat32)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(copy, uint8_to_uint8, DType::kUInt8, DType::kUInt8)->Unit(benchmark::kMillisecond);
BENCHMARK(noise)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace vox
