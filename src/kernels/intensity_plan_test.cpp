// Passes planned for a GPU, run by the CPU: they give what one step after the other gives, wherever patch and output
// lie.
#include <gtest/gtest.h>

#include <cmath>

#include "base/drawn_seed.h"
#include "kernels/blur.h"
#include "kernels/intensity_passes.h"
#include "kernels/low_resolution.h"
#include "kernels/moments.h"

namespace vox::cuda {
namespace {

using Values = std::vector<float>;

struct Patch {
  Values values;
  Extent3 extent;

  void run(const step::Multiply& s) {
    for (float& value : values) value *= s.factor;
  }
  void run(const step::Add& s) {
    for (float& value : values) value += s.amount;
  }
  void run(const step::Invert&) {
    const float twice = static_cast<float>(2 * moments_cpu(values.data(), extent.voxels()).mean);
    for (float& value : values) value = twice - value;
  }
  void run(const step::Blur& s) { gaussian_blur_cpu(values.data(), extent, s.sigma); }
  void run(const step::Sharpen& s) {
    Values smooth = values;
    gaussian_blur_cpu(smooth.data(), extent, {s.sigma, s.sigma, s.sigma});
    for (size_t i = 0; i < values.size(); ++i) values[i] += s.strength * (values[i] - smooth[i]);
  }
  void run(const step::LowResolution& s) { low_resolution_cpu(values.data(), extent, s.coarse); }
  template <class Step>
  void run(const Step&) {
    FAIL() << "a step that this test does not draw";
  }
};

Values loaded(const PointPass& pass, const Extent3& extent) {
  const Load& load = pass.load;
  Patch patch{Values(load.from, load.from + extent.voxels()), extent};
  if (load.kind == LoadKind::kPlain) return patch.values;
  if (load.kind == LoadKind::kLowResolution) {
    Values out;
    const auto at = [&](int32_t z, int32_t y, int32_t x) { return load.from[(z * extent.y + y) * extent.x + x]; };
    const auto mix = [](float a, float b, float fraction) { return a + fraction * (b - a); };
    for (int64_t z = 0; z < extent.z; ++z)
      for (int64_t y = 0; y < extent.y; ++y)
        for (int64_t x = 0; x < extent.x; ++x) {
          const CoarseTap a = load.taps[0][z], b = load.taps[1][y], c = load.taps[2][x];
          const auto column = [&](int32_t j, int32_t k) { return mix(at(a.low, j, k), at(a.high, j, k), a.fraction); };
          const auto row = [&](int32_t k) { return mix(column(b.low, k), column(b.high, k), b.fraction); };
          out.push_back(mix(row(c.low), row(c.high), c.fraction));
        }
    return out;
  }
  symmetric_blur_cpu(patch.values.data(), extent, load.axis, Values(load.weights, load.weights + load.radius + 1));
  if (load.kind == LoadKind::kSharpen)
    for (size_t i = 0; i < patch.values.size(); ++i)
      patch.values[i] = load.original[i] + load.strength * (load.original[i] - patch.values[i]);
  return patch.values;
}

void run_pass(const PointPass& pass, const Extent3& extent) {
  // What looks around itself must not write where it reads; nor over what is still to be sharpened by others.
  if (pass.load.kind != LoadKind::kPlain) {
    ASSERT_NE(pass.to, pass.load.from);
    ASSERT_NE(pass.output.data, pass.load.from);
  }
  Patch patch{loaded(pass, extent), extent};
  for (int32_t i = 0; i < pass.count; ++i) {
    const PointOp& op = pass.ops[i];
    if (op.kind == PointKind::kMultiply) patch.run(step::Multiply{op.a});
    if (op.kind == PointKind::kAdd) patch.run(step::Add{op.a});
    if (op.kind == PointKind::kInvert)
      for (float& value : patch.values) value = static_cast<float>(2 * pass.memory->slots[op.slot].mean) - value;
  }
  if (pass.to) std::copy(patch.values.begin(), patch.values.end(), pass.to);
  if (pass.output.data) std::copy(patch.values.begin(), patch.values.end(), static_cast<float*>(pass.output.data));
  if (pass.moments >= 0) pass.memory->slots[pass.moments].mean = moments_cpu(patch.values.data(), extent.voxels()).mean;
}

std::vector<IntensityStep> random_steps(Random& random) {
  std::vector<IntensityStep> steps;
  const int64_t count = 1 + random.below(20);
  for (int64_t i = 0; i < count; ++i) {
    const double sigma = random.uniform(0, 1.5);
    switch (random.below(6)) {
      case 0:
        steps.push_back(step::Multiply{static_cast<float>(random.uniform(0.8, 1.2))});
        break;
      case 1:
        steps.push_back(step::Add{static_cast<float>(random.normal())});
        break;
      case 2:
        steps.push_back(step::Invert{});
        break;
      case 3:
        steps.push_back(step::Blur{{sigma, random.chance(0.3) ? 0.0 : sigma, random.uniform(0, 1)}});
        break;
      case 4:
        steps.push_back(step::Sharpen{sigma, 0.5f});
        break;
      default:
        steps.push_back(step::LowResolution{{1 + random.below(6), 1 + random.below(7), 1 + random.below(9)}});
    }
  }
  return steps;
}

TEST(IntensityPlan, PassesGiveWhatTheStepsGive) {
  const uint64_t seed = drawn_seed();
  for (uint64_t trial = 0; trial < 300; ++trial) {
    Random random(seed, trial, 0);
    const Extent3 extent{6, 7, 9};
    Patch patch{Values(static_cast<size_t>(extent.voxels())), extent};
    for (float& value : patch.values) value = static_cast<float>(random.normal());
    Values planes[3] = {patch.values, Values(patch.values.size(), NAN), Values(patch.values.size(), NAN)};
    Values other(patch.values.size(), NAN);
    const bool in_place = trial % 2 == 0;
    MomentMemory moments{};
    std::vector<std::byte> table_memory(1 << 16);
    Tables tables(table_memory.data());
    const std::vector<IntensityStep> steps = random_steps(random);
    const GatherOutput output{.data = in_place ? planes[0].data() : other.data(), .extent = extent};
    const std::vector<Pass> passes =
        plan_passes(steps, output, {{planes[0].data(), planes[1].data(), planes[2].data()}, &moments}, tables);
    ASSERT_LE(tables.bytes().size(), table_memory.size());
    std::copy(tables.bytes().begin(), tables.bytes().end(), table_memory.begin());
    for (const Pass& pass : passes) run_pass(std::get<PointPass>(pass), extent);
    for (const IntensityStep& one : steps) std::visit([&](const auto& s) { patch.run(s); }, one);
    const Values& made = in_place ? planes[0] : other;
    ASSERT_EQ(made, patch.values) << "seed " << seed << ", trial " << trial << ", " << steps.size() << " steps";
  }
}

}  // namespace
}  // namespace vox::cuda
