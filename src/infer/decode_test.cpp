// What channels become, by hand: chances by the logistic function, classes by the softmax.
#include "infer/decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace vox {
namespace {

using testing::ElementsAre;

constexpr int64_t kChannels = 3, kVoxels = 2;
// Voxel 0: foreground that no boundary passes; voxel 1: background beside a boundary.
const std::vector<float> kLogits{2, -1, /**/ -3, 4, /**/ 1, -2};

std::vector<uint8_t> labels_of(const DecodeOptions& options) {
  std::vector<uint8_t> labels(kVoxels);
  decode(reinterpret_cast<std::byte*>(labels.data()), kLogits.data(), kChannels, kVoxels, options);
  return labels;
}

std::vector<float> probabilities_of(DecodeOptions options) {
  options.output = Output::kProbabilities;
  std::vector<float> probabilities(kChannels * kVoxels);
  decode(reinterpret_cast<std::byte*>(probabilities.data()), kLogits.data(), kChannels, kVoxels, options);
  return probabilities;
}

double chance(double logit) {
  return 1 / (1 + std::exp(-logit));
}

TEST(Decode, LabelsComeFromTheChannelsOfTheLabelAlone) {
  EXPECT_THAT(labels_of({}), ElementsAre(0, 1));  // all are classes
  EXPECT_THAT(labels_of({.label_channels = {{0}}}), ElementsAre(1, 0));
  EXPECT_THAT(labels_of({.threshold = 0.1, .label_channels = {{0}}}), ElementsAre(1, 1));
  EXPECT_THAT(labels_of({.class_values = {0, 7}, .label_channels = {{2}}}), ElementsAre(7, 0));
  EXPECT_THAT(labels_of({.class_values = {3, 9}, .label_channels = {{0, 2}}}), ElementsAre(3, 3));
}

TEST(Decode, ProbabilitiesOfClassesShareOneAndTheOthersAreTheirOwn) {
  const auto near = [](double value) { return testing::FloatNear(static_cast<float>(value), 1e-6F); };
  const auto own = [&](size_t i) { return near(chance(kLogits[i])); };
  for (const std::vector<int64_t>& none_or_one : {std::vector<int64_t>{}, {1}})
    EXPECT_THAT(probabilities_of({.label_channels = none_or_one}),
                ElementsAre(own(0), own(1), own(2), own(3), own(4), own(5)));
  // Of two classes each has the chance of their difference.
  EXPECT_THAT(probabilities_of({.label_channels = {{0, 2}}}),
              ElementsAre(near(chance(2 - 1)), near(chance(-1 + 2)), own(2), own(3), near(chance(1 - 2)),
                          near(chance(-2 + 1))));
  EXPECT_THAT(probabilities_of({.label_channels = {{0}}, .value_channels = {1}}),
              ElementsAre(own(0), own(1), -3, 4, own(4), own(5)));
  const std::vector<float> all = probabilities_of({});
  for (size_t i = 0; i < kVoxels; ++i) EXPECT_NEAR(all[i] + all[i + 2] + all[i + 4], 1, 1e-6);
  EXPECT_NEAR(all[0] / all[4], std::exp(2 - 1), 1e-5);
}

}  // namespace
}  // namespace vox
