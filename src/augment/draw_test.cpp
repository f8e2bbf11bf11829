// Ten thousand draws of each transform against the distribution that its options state.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "augment/spatial.h"
#include "augment/test_options.h"
#include "config/config.h"
#include "kernels/deformation.h"

namespace vox {
namespace {

const Extent3 kPatch{8, 12, 16};
constexpr int64_t kDraws = 10000;

template <class Visit>
void for_draws(const AugmentationOptions& options, const Visit& visit) {
  for (int64_t sample = 0; sample < kDraws; ++sample) visit(draw_transforms(options, kPatch, {}, 11, sample, 2));
}

bool happened(const Drawn& drawn, const std::string& name) {
  return std::any_of(drawn.parameters.begin(), drawn.parameters.end(),
                     [&](const auto& parameter) { return parameter.first == name; });
}

// The numbers in the text that `inspect --sample` prints.
std::vector<double> numbers(const Drawn& drawn, const std::string& name) {
  std::vector<double> found;
  for (const auto& [key, text] : drawn.parameters) {
    if (key != name) continue;
    std::string spaced = text;
    for (char& c : spaced)
      if (c == ',' || c == '|') c = ' ';
    std::istringstream words(spaced);
    for (std::string word; words >> word;)
      if (std::isdigit(static_cast<unsigned char>(word.front())) || word.front() == '-')
        found.push_back(std::stod(word));
  }
  return found;
}

// Kolmogorov and Smirnov: 1.95 / sqrt(n) is passed by chance once in a thousand. Printed with four digits.
double distance_to_uniform(std::vector<double> values, double low, double high) {
  std::sort(values.begin(), values.end());
  double largest = 0;
  const double n = static_cast<double>(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const double expected = (values[i] - low) / (high - low);
    largest = std::max({largest, std::abs(expected - static_cast<double>(i) / n),
                        std::abs(expected - static_cast<double>(i + 1) / n)});
  }
  return largest * std::sqrt(n);
}

void expect_share(int64_t count, double share) {
  EXPECT_NEAR(static_cast<double>(count), share * kDraws, 4.5 * std::sqrt(kDraws * share * (1 - share)) + 1e-9);
}

TEST(Draws, EveryTransformHappensWithItsProbability) {
  AugmentationOptions options = all_on();
  const double prob = 0.3;
  options.rot90.prob = options.transpose.prob = options.rotate.prob = options.scale.prob = options.shift.prob = prob;
  options.shear.prob = options.elastic.prob = options.misalignment.prob = options.noise.prob = options.blur.prob = prob;
  options.sharpen.prob = options.brightness.prob = options.brightness_add.prob = options.contrast.prob = prob;
  options.brightness_gradient.prob = options.low_resolution.prob = options.gamma.prob = options.cutout.prob = prob;
  options.gamma_inverted.prob = options.invert.prob = options.slice_illumination.prob = options.cut_noise.prob = prob;
  options.missing_section.prob = options.dropped_section.prob = options.blurred_section.prob = prob;
  options.motion_blur.prob = prob;
  options.flip.axes = {1};
  options.flip.prob = prob;
  std::map<std::string, int64_t> count;
  for_draws(options, [&](const Drawn& drawn) {
    for (const auto& [name, text] : drawn.parameters) ++count[name];
  });
  for (const TransformEntry& entry : all_transforms()) {
    SCOPED_TRACE(entry.name);
    expect_share(count[entry.name], prob);
  }
}

TEST(Draws, RangesAreUniform) {
  AugmentationOptions options = all_on();
  options.elastic.enabled = false;
  struct Case {
    const char* name;
    size_t number;
    double low, high;
  };
  const Case cases[] = {
      {"rotate", 0, -30, 30},      {"rotate", 2, -30, 30},           {"scale", 0, 0.7, 1.4},
      {"shift", 1, -8, 8},         {"shear", 5, -0.1, 0.1},          {"noise", 0, 0, 0.1},
      {"blur", 0, 0.5, 1},         {"sharpen", 0, 0.1, 1},           {"brightness", 0, 0.75, 1.25},
      {"contrast", 0, 0.75, 1.25}, {"brightness_add", 0, -0.1, 0.1}, {"low_resolution", 0, 0.5, 1},
      {"gamma", 0, 0.7, 1.5},      {"cut_noise", 0, 0.05, 0.15},     {"brightness_gradient", 0, 0.1, 0.5}};
  std::map<const Case*, std::vector<double>> values;
  for_draws(options, [&](const Drawn& drawn) {
    for (const Case& one : cases) values[&one].push_back(numbers(drawn, one.name).at(one.number));
  });
  for (const Case& one : cases)
    EXPECT_LT(distance_to_uniform(values[&one], one.low, one.high), 1.95 + 0.15) << one.name << one.number;
}

TEST(Draws, FlipsSwapTheParotidsWithTheSide) {
  AugmentationOptions options;
  options.flip.enabled = true;
  options.flip.swap_channels = {0, 1};
  int64_t flips = 0;
  for_draws(options, [&](const Drawn& drawn) {
    const bool side = drawn.map.linear[1][1] < 0;
    flips += side;
    EXPECT_EQ(drawn.channel_to_read(0), side ? 1 : 0);
    EXPECT_EQ(drawn.channel_to_read(1), side ? 0 : 1);
  });
  expect_share(flips, 0.5);
}

TEST(Draws, StepsOfAnAngleAreEquallyFrequent) {
  AugmentationOptions options;
  options.rotate.enabled = true;
  options.rotate.prob = 1;
  options.rotate.axes = {2};
  options.rotate.degrees = {-160, 160};
  options.rotate.step = 40;
  std::map<double, int64_t> count;
  for_draws(options, [&](const Drawn& drawn) { ++count[numbers(drawn, "rotate").at(2)]; });
  EXPECT_EQ(count.size(), 9u);
  for (const auto& [angle, times] : count) expect_share(times, 1.0 / 9);
}

TEST(Draws, BalancedFactorsLieBelowOneHalfOfTheTime) {
  AugmentationOptions options;
  options.gamma.enabled = options.gamma.balanced = true;
  options.gamma.prob = 1;
  std::vector<double> below, above;
  for_draws(options, [&](const Drawn& drawn) {
    const double exponent = numbers(drawn, "gamma").at(0);
    (exponent < 1 ? below : above).push_back(exponent);
  });
  expect_share(static_cast<int64_t>(below.size()), 0.5);
  EXPECT_LT(distance_to_uniform(below, 0.7, 1), 2.1);
  EXPECT_LT(distance_to_uniform(above, 1, 1.5), 2.1);
}

TEST(Draws, TranspositionsAreEquallyFrequentAndNeverTheIdentity) {
  AugmentationOptions options;
  options.transpose.enabled = true;
  options.transpose.prob = 1;
  std::map<std::string, int64_t> count;
  for_draws(options, [&](const Drawn& drawn) { ++count[drawn.parameters.at(0).second]; });
  EXPECT_EQ(count.size(), 5u);
  EXPECT_EQ(count.count("axes 0,1,2"), 0u);
  for (const auto& [order, times] : count) expect_share(times, 0.2);
}

TEST(Draws, ControlPointsHaveTheirDeviationInVoxelsAndMillimetres) {
  AugmentationOptions options;
  options.elastic.enabled = true;
  options.elastic.prob = 1;
  options.elastic.magnitude = {2, 2};
  options.elastic.control_points = 7;
  const auto moments = [&](const Spacing3& spacing, size_t axis, double* largest) {
    double squares = 0, count = 0;
    for (int64_t sample = 0; sample < 40; ++sample) {
      const Drawn drawn = draw_transforms(options, kPatch, spacing, 11, sample);
      EXPECT_EQ(drawn.deformation->grid.points, (Extent3{7, 7, 7}));
      for (const float shift : drawn.deformation->grid.shift[axis]) {
        squares += static_cast<double>(shift) * static_cast<double>(shift);
        *largest = std::max(*largest, std::abs(static_cast<double>(shift)));
        count += 1;
      }
    }
    return std::sqrt(squares / count);
  };
  double largest = 0;
  EXPECT_NEAR(moments({}, 0, &largest), 2, 0.1);
  EXPECT_GT(largest, 5);
  options.elastic.unit = "mm";
  EXPECT_NEAR(moments({.z_mm = 4}, 0, &largest), 0.5, 0.025);
  EXPECT_NEAR(moments({.z_mm = 4}, 1, &largest), 2, 0.1);
  options.elastic.unit = "voxels";
  options.elastic.distribution = "uniform";
  largest = 0;
  EXPECT_NEAR(moments({}, 2, &largest), 2 / std::sqrt(3.0), 0.05);
  EXPECT_LE(largest, 2);
}

TEST(Draws, MisalignmentMovesOneSectionOrAllThatFollow) {
  AugmentationOptions options;
  options.misalignment.enabled = true;
  options.misalignment.prob = 1;
  options.misalignment.voxels = 5;
  int64_t slips = 0, still = 0;
  std::map<float, int64_t> shifts;
  for_draws(options, [&](const Drawn& drawn) {
    const std::vector<float>& x = drawn.deformation->section_x;
    ASSERT_EQ(x.size(), 8u);
    EXPECT_EQ(x[0], 0);
    const int64_t moved = std::count_if(x.begin(), x.end(), [](float shift) { return shift != 0; });
    still += moved == 0;
    slips += moved == 1 && x.back() == 0;
    ++shifts[*std::max_element(x.begin(), x.end(), [](float a, float b) { return std::abs(a) < std::abs(b); })];
  });
  EXPECT_EQ(shifts.size(), 11u);
  for (const auto& [shift, times] : shifts) expect_share(times, 1.0 / 11);
  expect_share(still, 1.0 / 11);
  expect_share(slips, 0.5 * 6 / 7 * 10 / 11);  // a slip of the last section looks like a move of all that follow
}

// nnU-Net's published load: 36 % of samples are interpolated, 1.25 intensity operations a sample.
TEST(Draws, ThePresetOfNnunetHasItsLoad) {
  const AugmentationOptions options = parse_config("augmentation: {preset: nnunet}", "/").options.augmentation;
  int64_t interpolated = 0, operations = 0, mirrored = 0;
  for_draws(options, [&](const Drawn& drawn) {
    interpolated += happened(drawn, "rotate") || happened(drawn, "scale");
    operations += static_cast<int64_t>(drawn.intensity.size());
    mirrored += happened(drawn, "flip");
  });
  expect_share(interpolated, 0.36);
  expect_share(mirrored, 7.0 / 8);
  EXPECT_NEAR(static_cast<double>(operations) / kDraws, 1.25, 0.05);
}

TEST(Draws, AShiftLeavesTheKeptBoxInSightAndUsesTheRoomAroundIt) {
  AugmentationOptions options;
  options.flip.enabled = options.shift.enabled = options.shift.whole = true;
  options.shift.prob = 1;
  options.shift.voxels = {-20, 20};
  options.shift.keep = "mask";
  const Box3 kept{{2, 0, 5}, {5, 11, 16}};
  const DrawContext context{.patch = kPatch, .kept = kept};
  double least[3] = {0, 0, 0}, most[3] = {0, 0, 0};
  for (int64_t sample = 0; sample < 2000; ++sample) {
    const Drawn drawn = draw_transforms(options, context, 11, sample);
    for (int axis = 0; axis < 3; ++axis) {
      const double way = drawn.map.linear[axis][axis], centre = static_cast<double>(kPatch[axis] - 1) / 2;
      const double moved = drawn.map.shift[axis];  // of the source
      least[axis] = std::min(least[axis], moved);
      most[axis] = std::max(most[axis], moved);
      for (const int64_t voxel :
           {kept.begin[axis], kept.end[axis] - 1}) {  // source = centre + way * (out - centre) + moved
        const double out = centre + (static_cast<double>(voxel) - centre - moved) / way;
        EXPECT_GE(out, 0);
        EXPECT_LE(out, static_cast<double>(kPatch[axis] - 1));
      }
    }
  }
  EXPECT_THAT(least, ::testing::ElementsAre(-3, -1, 0));  // as far as the kept box lies from the borders
  EXPECT_THAT(most, ::testing::ElementsAre(2, 0, 5));
}

TEST(Draws, ScaleAndShearHappenWithRotateOnRequest) {
  AugmentationOptions options;
  for (Switch* transform : std::initializer_list<Switch*>{&options.rotate, &options.scale, &options.shear}) {
    transform->enabled = true;
    transform->prob = 0.3;
  }
  options.scale.with_rotate = options.shear.with_rotate = true;
  int64_t together = 0;
  for_draws(options, [&](const Drawn& drawn) {
    together += happened(drawn, "rotate");
    EXPECT_EQ(happened(drawn, "scale"), happened(drawn, "rotate"));
    EXPECT_EQ(happened(drawn, "shear"), happened(drawn, "rotate"));
  });
  expect_share(together, 0.3);
}

}  // namespace
}  // namespace vox
