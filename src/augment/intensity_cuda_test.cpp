// Transforms of values on the GPU against the CPU's, one by one and all together, and what they cost.
#include "kernels/intensity_cuda.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "augment/augment.h"
#include "augment/test_options.h"
#include "base/cuda_test_effort.h"
#include "base/drawn_seed.h"
#include "config/presets.h"
#include "kernels/cuda_test_memory.h"
#include "kernels/gather_cuda.h"

namespace vox::cuda {
namespace {

struct Planes {
  explicit Planes(const Extent3& extent) {
    const auto floats = at::TensorOptions(at::kCUDA).dtype(at::kFloat);
    for (at::Tensor& plane : memory) plane = at::full({extent.voxels()}, NAN, floats);
    moments = at::empty({static_cast<int64_t>(sizeof(MomentMemory))}, floats.dtype(at::kByte));
  }
  PatchMemory view() const {
    return {{memory[0].data_ptr<float>(), memory[1].data_ptr<float>(), memory[2].data_ptr<float>()},
            static_cast<MomentMemory*>(moments.data_ptr())};
  }
  at::Tensor memory[3], moments;
};

std::vector<float> random_patch(const Extent3& extent, Random& random) {
  std::vector<float> values(static_cast<size_t>(extent.voxels()));
  const double mean = random.uniform(-2, 2), spread = random.uniform(0.3, 3);
  for (float& value : values) value = static_cast<float>(mean + spread * random.normal());
  return values;
}

std::vector<float> on_gpu(const std::vector<float>& patch, const Extent3& extent,
                          const std::vector<IntensityStep>& steps, bool in_place, int64_t stride) {
  Planes planes(extent);
  const PatchMemory memory = planes.view();
  planes.memory[0].copy_(at::from_blob(const_cast<float*>(patch.data()), {extent.voxels()}));
  at::Tensor other = at::full({extent.voxels() * stride}, NAN, planes.memory[0].options());
  const GatherOutput output{.data = in_place ? memory.plane[0] : other.data_ptr<float>(),
                            .extent = extent,
                            .voxel_stride = in_place ? 1 : stride};
  at::Tensor tables = at::empty({1 << 22}, other.options().dtype(at::kByte));
  Tables small(static_cast<const std::byte*>(tables.data_ptr()));
  const std::vector<Pass> passes = plan_passes(steps, output, memory, small);
  const int64_t bytes = static_cast<int64_t>(small.bytes().size());
  if (bytes > 0) tables.narrow(0, 0, bytes).copy_(device_bytes(small.bytes().data(), bytes).narrow(0, 0, bytes));
  run_passes(passes, nullptr);
  const at::Tensor result = in_place ? planes.memory[0] : other.reshape({-1, stride}).select(1, 0).contiguous();
  std::vector<float> values(patch.size());
  std::memcpy(values.data(), result.to(at::kCPU).data_ptr(), values.size() * sizeof(float));
  return values;
}

struct Difference {
  double largest = 0;  // over the range of the patch
  int64_t unequal = 0, changed = 0, voxels = 0;

  void add(const Difference& other) {
    largest = std::max(largest, other.largest);
    unequal += other.unequal;
    changed += other.changed;
    voxels += other.voxels;
  }
};
std::ostream& operator<<(std::ostream& out, const Difference& seen) {
  return out << seen.changed << " of " << seen.voxels << " voxels changed, " << seen.unequal
             << " differ from the CPU's, by at most " << seen.largest << " of the range";
}

void compare(const std::vector<float>& before, const std::vector<float>& cpu, const std::vector<float>& gpu,
             Difference& seen) {
  const auto [low, high] = std::minmax_element(cpu.begin(), cpu.end());
  const double range = std::max(1e-6, static_cast<double>(*high) - static_cast<double>(*low));
  for (size_t i = 0; i < cpu.size(); ++i) {
    const double apart = std::abs(static_cast<double>(cpu[i]) - static_cast<double>(gpu[i])) / range;
    seen.largest = apart <= seen.largest ? seen.largest : std::isnan(apart) ? INFINITY : apart;
    seen.unequal += cpu[i] != gpu[i];
    seen.changed += gpu[i] != before[i];
    ++seen.voxels;
  }
}

Difference differences(const Drawn& drawn, const Extent3& extent, int64_t channels, Random& random) {
  Difference seen;
  for (int64_t channel = 0; channel < channels; ++channel) {
    const std::vector<float> before = random_patch(extent, random);
    const std::vector<float> gpu =
        on_gpu(before, extent, steps_of(drawn, channel), random.chance(0.5), 1 + random.below(3));
    std::vector<float> cpu = before;
    for (const auto& [name, apply] : drawn.intensity) apply({cpu.data(), extent, channel});
    compare(before, cpu, gpu, seen);
  }
  return seen;
}

// Pairs of a transform's name and its switch among all of them.
void leave_only(const std::string& name, AugmentationOptions& options) {
  const auto keep = [&](auto... pairs) { ((pairs.second->enabled = name == pairs.first), ...); };
  AugmentationOptions& o = options;
  const auto of = [](const char* label, Switch& one) { return std::pair<std::string, Switch*>(label, &one); };
  keep(of("noise", o.noise), of("blur", o.blur), of("sharpen", o.sharpen), of("brightness", o.brightness),
       of("brightness_add", o.brightness_add), of("brightness_gradient", o.brightness_gradient),
       of("contrast", o.contrast), of("low_resolution", o.low_resolution), of("gamma_inverted", o.gamma_inverted),
       of("gamma", o.gamma), of("invert", o.invert), of("slice_illumination", o.slice_illumination),
       of("cutout", o.cutout), of("cut_noise", o.cut_noise), of("missing_section", o.missing_section),
       of("dropped_section", o.dropped_section), of("blurred_section", o.blurred_section),
       of("motion_blur", o.motion_blur));
}

Extent3 random_extent(Random& random) {
  return {2 + random.below(30), 1 + random.below(40), 1 + random.below(70)};
}

TEST(IntensityCuda, EachTransformEqualsTheCpus) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  const uint64_t seed = drawn_seed();
  for (const TransformEntry& entry : all_transforms()) {
    AugmentationOptions options = all_on();
    leave_only(entry.name, options);
    Drawn of_it;
    entry.draw(all_on(), {.patch = {8, 8, 8}}, Random(1, 2, 3), of_it);
    if (of_it.intensity.empty()) continue;  // it moves voxels
    Difference worst;
    for (uint64_t trial = 0; trial < static_cast<uint64_t>(cases(12)); ++trial) {
      Random random(seed, trial, entry.stream);
      const Extent3 extent = random_extent(random);
      options.contrast.preserve_range = options.gamma.keep_statistics = trial % 2 == 0;
      options.cutout.fill = trial % 2 == 0 ? "mean" : "zero";
      const int64_t channels = 1 + random.below(3);
      const Drawn drawn = draw_transforms(options, extent, {}, seed, static_cast<int64_t>(trial), channels);
      worst.add(differences(drawn, extent, channels, random));
    }
    EXPECT_LT(worst.largest, 1e-5) << entry.name << ", seed " << seed;
    EXPECT_GT(worst.changed, 0) << entry.name << ", seed " << seed;
    std::cout << entry.name << ": " << worst << "\n";
  }
}

TEST(IntensityCuda, AllTogetherAsTheRecipesDrawThem) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  const uint64_t seed = drawn_seed();
  const Extent3 extent{20, 44, 52};
  for (const char* preset : {"scroll_heavy", "em", "nnunet"}) {
    Options options;
    apply_preset(preset, extent, options);
    Difference worst;
    for (int64_t sample = 0; sample < cases(60); ++sample) {
      Random random(seed, static_cast<uint64_t>(sample), 1);
      const Drawn drawn = draw_transforms(options.augmentation, extent, {}, seed, sample);
      const Difference seen = differences(drawn, extent, 1, random);
      EXPECT_LT(seen.largest, 2e-5) << preset << " " << sample << ", seed " << seed;
      worst.add(seen);
    }
    if (!small_tests()) EXPECT_GT(worst.changed, worst.voxels / 4) << preset;
    std::cout << preset << ": " << worst << "\n";
  }
}

TEST(IntensityCuda, RepeatsGiveTheSameBits) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  const Extent3 extent{24, 40, 44};
  Random random(9, 0, 0);
  const Drawn drawn = draw_transforms(all_on(), extent, {}, 5, 0);
  const std::vector<float> patch = random_patch(extent, random);
  const std::vector<float> first = on_gpu(patch, extent, steps_of(drawn, 0), true, 1);
  for (int i = 0; i < launches(); ++i)
    ASSERT_EQ(std::memcmp(first.data(), on_gpu(patch, extent, steps_of(drawn, 0), true, 1).data(), 4 * first.size()),
              0);
}

// Batches of two samples as the scroll recipe draws them: gathers of image and label, and what follows.
TEST(IntensityCuda, TimeOfScrollHeavy) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  const Extent3 extent{72, 136, 136}, size{320, 320, 320};
  Options options;
  apply_preset("scroll_heavy", extent, options);
  const auto bytes_on_gpu = at::TensorOptions(at::kCUDA).dtype(at::kByte);
  const at::Tensor voxels = at::randint(0, 255, {size.voxels()}, bytes_on_gpu), labels = voxels.remainder(3);
  Planes planes(extent);
  at::Tensor label = at::empty({extent.voxels()}, bytes_on_gpu), tables = at::empty({1 << 20}, bytes_on_gpu);
  constexpr int64_t kSamples = 100;
  std::vector<std::pair<std::vector<GatherTask>, std::vector<Pass>>> work;
  Tables small(static_cast<const std::byte*>(tables.data_ptr()));
  VolumeView view{.data = static_cast<const std::byte*>(voxels.data_ptr()),
                  .box = whole(size),
                  .extent = size,
                  .stride_z = size.y * size.x,
                  .stride_y = size.x,
                  .scale = 0.02,
                  .offset = -1};
  for (int64_t sample = 0; sample < kSamples; ++sample) {
    const Drawn drawn = draw_transforms(options.augmentation, extent, {}, 1, sample);
    const GatherMap map = to_gather_map(drawn, {100 + sample, 90, 80}, extent);
    const float* deformation = nullptr;
    if (map.deformation) {
      std::vector<float> values(static_cast<size_t>(deformation_values(*map.deformation)));
      write_deformation(*map.deformation, values.data());
      deformation = small.add(values);
    }
    const GatherOutput image{.data = planes.view().plane[0], .extent = extent};
    VolumeView label_view = view;
    label_view.data = static_cast<const std::byte*>(labels.data_ptr());
    label_view.scale = 1, label_view.offset = 0;
    work.push_back({{gather_task(image, view, map, {Interpolation::kLinear}, deformation),
                     gather_task({.data = label.data_ptr(), .dtype = DType::kUInt8, .extent = extent}, label_view, map,
                                 {Interpolation::kNearest}, deformation)},
                    plan_passes(steps_of(drawn, 0), image, planes.view(), small)});
  }
  const int64_t bytes = static_cast<int64_t>(small.bytes().size());
  ASSERT_LE(bytes, tables.numel());
  tables.narrow(0, 0, bytes).copy_(device_bytes(small.bytes().data(), bytes).narrow(0, 0, bytes));
  size_t passes = 0;
  for (const auto& one : work) passes += one.second.size();
  const double gathers = milliseconds_of(5, [&] {
    for (const auto& one : work)
      for (const GatherTask& task : one.first) gather(task, nullptr);
  });
  const double both = milliseconds_of(5, [&] {
    for (const auto& one : work) {
      for (const GatherTask& task : one.first) gather(task, nullptr);
      run_passes(one.second, nullptr);
    }
  });
  std::cout << "scroll_heavy 2x1x72x136x136: gather " << 2 * gathers / kSamples << " ms, with intensity "
            << 2 * both / kSamples << " ms a batch, " << 2.0 * static_cast<double>(passes) / kSamples << " passes\n";
  EXPECT_LT(2 * both / kSamples, 1.0);
}

}  // namespace
}  // namespace vox::cuda
