// Each transform of values against its formula, in double.
#include "augment/intensity.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "augment/test_options.h"

namespace vox {
namespace {

const Extent3 kPatch{8, 12, 16};
const Spacing3 kThickSlices{.z_mm = 5, .y_mm = 0.5, .x_mm = 0.7};

std::vector<float> values_before() {
  Random random(77, 0, 0);
  std::vector<float> values(static_cast<size_t>(kPatch.voxels()));
  for (float& value : values) value = static_cast<float>(random.normal());
  return values;
}

double mean_of(const std::vector<float>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// The values after transform `name` alone, as drawn for one sample.
std::vector<float> after(const std::string& name, const AugmentationOptions& options, int64_t channel = 0,
                         int64_t sample = 34) {
  const Drawn drawn = draw_transforms(options, kPatch, kThickSlices, 12, sample, 2);
  std::vector<float> values = values_before();
  for (const auto& [each, op] : drawn.intensity)
    if (each == name) op({values.data(), kPatch, channel});
  return values;
}

TEST(Intensity, EveryTransformIsAPureFunctionThatChangesAFinitePatch) {
  for (const TransformEntry& entry : all_transforms()) {
    const std::vector<float> once = after(entry.name, all_on());
    EXPECT_EQ(once, after(entry.name, all_on())) << entry.name;
    const Drawn drawn = draw_transforms(all_on(), kPatch, kThickSlices, 12, 34, 2);
    const bool acts = std::any_of(drawn.intensity.begin(), drawn.intensity.end(),
                                  [&](const auto& each) { return each.first == entry.name; });
    EXPECT_EQ(once != values_before(), acts) << entry.name;
    for (const float value : once) ASSERT_TRUE(std::isfinite(value)) << entry.name;
  }
}

TEST(Intensity, ContrastSpreadsAboutTheMeanAndKeepsTheRangeOnRequest) {
  AugmentationOptions options = all_on();
  const std::vector<float> before = values_before();
  const double mean = mean_of(before);
  const auto [low, high] = std::minmax_element(before.begin(), before.end());
  for (const bool preserve : {true, false})
    for (const double factor : {0.5, 3.0}) {
      options.contrast.factor = {factor, factor};
      options.contrast.preserve_range = preserve;
      const std::vector<float> spread = after("contrast", options);
      for (size_t i = 0; i < before.size(); ++i) {
        const double plain = mean + (static_cast<double>(before[i]) - mean) * factor;
        const double expected =
            preserve ? std::clamp(plain, static_cast<double>(*low), static_cast<double>(*high)) : plain;
        ASSERT_NEAR(spread[i], expected, 1e-5);
      }
    }
}

TEST(Intensity, BrightnessMultipliesAndAdds) {
  AugmentationOptions options = all_on();
  options.brightness.factor = {1.25, 1.25};
  options.brightness_add.shift = {-0.5, -0.5};
  const std::vector<float> before = values_before(), brighter = after("brightness", options),
                           darker = after("brightness_add", options);
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(brighter[i], before[i] * 1.25f);
    EXPECT_EQ(darker[i], before[i] - 0.5f);
  }
}

TEST(Intensity, TheGradientIsARampOfItsStrengthAboutTheCentre) {
  AugmentationOptions options = all_on();
  options.brightness_gradient.strength = {2, 2};
  const std::vector<float> before = values_before(), bright = after("brightness_gradient", options);
  const auto added = [&](int64_t z, int64_t y, int64_t x) {
    const size_t i = static_cast<size_t>((z * kPatch.y + y) * kPatch.x + x);
    return static_cast<double>(bright[i]) - static_cast<double>(before[i]);
  };
  double largest = 0;
  for (int64_t z = 0; z < kPatch.z; ++z)
    for (int64_t y = 0; y < kPatch.y; ++y)
      for (int64_t x = 0; x < kPatch.x; ++x) {
        EXPECT_NEAR(added(z, y, x), -added(kPatch.z - 1 - z, kPatch.y - 1 - y, kPatch.x - 1 - x), 1e-5);
        const int64_t left = std::max<int64_t>(x - 1, 0);
        const double steps = static_cast<double>(x - left);
        EXPECT_NEAR(added(z, y, x) - added(z, y, left), steps * (added(0, 0, 1) - added(0, 0, 0)), 1e-5);
        largest = std::max(largest, std::abs(added(z, y, x)));
      }
  EXPECT_NEAR(largest, 2, 1e-5);
}

TEST(Intensity, NoiseHasItsSigmaAndDiffersBetweenChannels) {
  AugmentationOptions options = all_on();
  options.noise.sigma = {0.1, 0.1};
  const std::vector<float> before = values_before(), first = after("noise", options, 0);
  double sum = 0, squares = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    const double noise = static_cast<double>(first[i]) - static_cast<double>(before[i]);
    sum += noise;
    squares += noise * noise;
  }
  const double count = static_cast<double>(before.size());  // 1536: five standard errors
  EXPECT_NEAR(sum / count, 0, 5 * 0.1 / std::sqrt(count));
  EXPECT_NEAR(squares / count, 0.01, 5 * 0.01 * std::sqrt(2 / count));
  EXPECT_NE(first, after("noise", options, 1));
}

TEST(Intensity, InvertMirrorsAboutTheMean) {
  const std::vector<float> before = values_before(), inverted = after("invert", all_on());
  const double mean = mean_of(before);
  for (size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(inverted[i], 2 * mean - static_cast<double>(before[i]), 1e-5);
}

TEST(Intensity, SharpeningAddsWhatBlurTakesAway) {
  AugmentationOptions options = all_on();
  options.sharpen.sigma = {1, 1};
  options.sharpen.strength = {1, 1};
  options.blur.sigma = {1, 1};
  const std::vector<float> before = values_before(), smooth = after("blur", options), sharp = after("sharpen", options);
  for (size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(sharp[i], 2 * before[i] - smooth[i], 1e-5);
}

TEST(Intensity, EverySliceHasALightOfItsOwn) {
  AugmentationOptions options = all_on();
  options.slice_illumination.factor = {0.5, 2};
  options.slice_illumination.shift = {-1, 1};
  for (int64_t axis = 0; axis < 3; ++axis) {
    options.slice_illumination.axes = {axis};
    const std::vector<float> before = values_before(), lit = after("slice_illumination", options);
    std::vector<std::vector<std::pair<double, double>>> by_slice(static_cast<size_t>(kPatch[static_cast<int>(axis)]));
    for (int64_t i = 0; i < kPatch.voxels(); ++i) {
      const int64_t at[3] = {i / (kPatch.y * kPatch.x), i / kPatch.x % kPatch.y, i % kPatch.x};
      by_slice[static_cast<size_t>(at[axis])].emplace_back(before[static_cast<size_t>(i)], lit[static_cast<size_t>(i)]);
    }
    for (const auto& slice : by_slice) {  // the line through two voxels holds for all
      const double factor = (slice[1].second - slice[0].second) / (slice[1].first - slice[0].first);
      EXPECT_TRUE(factor > 0.49 && factor < 2.01) << factor;
      for (const auto& [from, to] : slice)
        ASSERT_NEAR(to, slice[0].second + factor * (from - slice[0].first), 1e-4) << axis;
    }
  }
}

// Which voxels a transform changed, as the box around them and their number.
std::pair<Box3, int64_t> changed(const std::vector<float>& before, const std::vector<float>& now) {
  Box3 box{kPatch, {0, 0, 0}};
  int64_t count = 0;
  for (int64_t i = 0; i < kPatch.voxels(); ++i) {
    if (before[static_cast<size_t>(i)] == now[static_cast<size_t>(i)]) continue;
    const Extent3 at{i / (kPatch.y * kPatch.x), i / kPatch.x % kPatch.y, i % kPatch.x};
    box = {min(box.begin, at), max(box.end, at + Extent3{1, 1, 1})};
    ++count;
  }
  return {box, count};
}

TEST(Intensity, CutoutAndCutNoiseTouchTheirBoxAlone) {
  AugmentationOptions options = all_on();
  options.cutout.size = options.cut_noise.size = {0.5, 0.5};
  for (const char* name : {"cutout", "cut_noise"}) {
    const auto [box, count] = changed(values_before(), after(name, options));
    EXPECT_EQ(box.extent(), (Extent3{4, 6, 8})) << name;
    EXPECT_EQ(count, box.voxels()) << name;
  }
  options.cutout.fill = "zero";
  const std::vector<float> cut = after("cutout", options);
  EXPECT_EQ(std::count(cut.begin(), cut.end(), 0.0f), 4 * 6 * 8);
}

TEST(Intensity, DefectsStrikeWholeSectionsOnly) {
  AugmentationOptions options = all_on();
  options.missing_section.full_prob = 1;
  for (const char* name : {"missing_section", "dropped_section", "blurred_section", "motion_blur"}) {
    const auto [box, count] = changed(values_before(), after(name, options));
    EXPECT_EQ(box.extent(), (Extent3{1, kPatch.y, kPatch.x})) << name;
    EXPECT_EQ(count, kPatch.y * kPatch.x) << name;
  }
  options.missing_section.full_prob = 0;
  options.missing_section.part = {0.5, 0.5};
  EXPECT_EQ(changed(values_before(), after("missing_section", options)).second, kPatch.y * kPatch.x / 2);
}

TEST(Intensity, ADroppedSectionIsItsNeighbourOrTheMeanOfBoth) {
  AugmentationOptions options = all_on();
  const std::vector<float> before = values_before();
  const int64_t slice = kPatch.y * kPatch.x;
  for (const char* with : {"neighbour", "mean"}) {
    options.dropped_section.with = with;
    const std::vector<float> now = after("dropped_section", options);
    const int64_t z = changed(before, now).first.begin.z;
    const auto at = [&](int64_t section, int64_t i) {
      const int64_t bounced = section < 0 ? 1 : section >= kPatch.z ? kPatch.z - 2 : section;
      return before[static_cast<size_t>(bounced * slice + i)];
    };
    for (int64_t i = 0; i < slice; ++i) {
      const float value = now[static_cast<size_t>(z * slice + i)], a = at(z - 1, i), b = at(z + 1, i);
      EXPECT_TRUE(std::string(with) == "mean" ? value == 0.5f * (a + b) : value == a || value == b);
    }
  }
}

TEST(Intensity, MotionBlurLeavesAPlaneOfValuesAloneAwayFromTheBorder) {
  AugmentationOptions options = all_on();
  options.motion_blur.length = {4, 4};
  const Drawn drawn = draw_transforms(options, kPatch, kThickSlices, 12, 34, 2);
  // A plane of values stays itself under any symmetric mean, away from the border.
  std::vector<float> plane(static_cast<size_t>(kPatch.voxels()));
  for (int64_t i = 0; i < kPatch.voxels(); ++i)
    plane[static_cast<size_t>(i)] = static_cast<float>(3 * (i / kPatch.x % kPatch.y) + i % kPatch.x);
  std::vector<float> moved = plane;
  for (const auto& [name, op] : drawn.intensity)
    if (std::string(name) == "motion_blur") op({moved.data(), kPatch, 0});
  EXPECT_NE(moved, plane);
  for (int64_t i = 0; i < kPatch.voxels(); ++i) {
    const int64_t y = i / kPatch.x % kPatch.y, x = i % kPatch.x;
    const bool inside = y >= 2 && y < kPatch.y - 2 && x >= 2 && x < kPatch.x - 2;
    EXPECT_NEAR(moved[static_cast<size_t>(i)], plane[static_cast<size_t>(i)], inside ? 1e-4 : 10);
  }
}

TEST(Intensity, ChannelsHaveTheirOwnParametersOnRequest) {
  AugmentationOptions options = all_on();
  EXPECT_EQ(after("brightness", options, 0), after("brightness", options, 1));
  options.brightness.per_channel = true;
  EXPECT_NE(after("brightness", options, 0), after("brightness", options, 1));
  options.brightness.channel_prob = 0.25;
  int left_alone = 0;
  for (int64_t sample = 0; sample < 400; ++sample)
    left_alone += after("brightness", options, 1, sample) == values_before();
  EXPECT_NEAR(left_alone, 300, 5 * std::sqrt(400 * 0.25 * 0.75));
}

TEST(Intensity, OnlyTheChannelsAskedForChange) {
  AugmentationOptions options = all_on();
  const auto changed = [&](const DrawContext& context, int64_t channel) {
    std::vector<float> values = values_before();
    for (const auto& [name, op] : draw_transforms(options, context, 12, 34).intensity)
      op({values.data(), kPatch, channel});
    return values != values_before();
  };
  const DrawContext context{.patch = kPatch, .channels = 3, .continuous = {0, 2}};
  EXPECT_TRUE(changed(context, 0) && !changed(context, 1) && changed(context, 2));
  options.channels = {1};  // what is written holds
  EXPECT_TRUE(!changed(context, 0) && changed(context, 1) && !changed(context, 2));
  options.channels = {3};
  EXPECT_THROW(changed(context, 0), Error);
}

TEST(Intensity, ACutoutMayBeOneSectionThick) {
  AugmentationOptions options;
  options.cutout.enabled = true;
  options.cutout.prob = 1;
  options.cutout.sections = 1;
  options.cutout.size = {0.5, 0.5};
  options.cutout.fill = "zero";
  for (int64_t sample = 0; sample < 20; ++sample) {
    const std::vector<float> values = after("cutout", options, 0, sample);
    const int64_t slice = kPatch.y * kPatch.x;
    std::vector<int64_t> blank;
    for (int64_t z = 0; z < kPatch.z; ++z)
      blank.push_back(std::count(values.begin() + z * slice, values.begin() + (z + 1) * slice, 0.0f));
    EXPECT_EQ(std::count(blank.begin(), blank.end(), 0), kPatch.z - 1);
    EXPECT_EQ(*std::max_element(blank.begin(), blank.end()), slice / 4);
  }
}

}  // namespace
}  // namespace vox
