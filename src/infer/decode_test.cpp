// What channels become, by hand: chances by the logistic function, classes by the softmax.
#include "infer/decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "config/config.h"

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
  EXPECT_THAT(probabilities_of({.softmax = false}), ElementsAre(own(0), own(1), own(2), own(3), own(4), own(5)));
  const std::vector<float> all = probabilities_of({});
  for (size_t i = 0; i < kVoxels; ++i) EXPECT_NEAR(all[i] + all[i + 2] + all[i + 4], 1, 1e-6);
  EXPECT_NEAR(all[0] / all[4], std::exp(2 - 1), 1e-5);
}

TEST(Decode, WithoutAChannelOfItsOwnTheBackgroundIsWhereNoneIsLikely) {
  DecodeOptions options{.class_values = {0, 4, 9}, .label_channels = {{0, 2}}, .softmax = false};
  options.background_channel = false;
  EXPECT_THAT(labels_of(options), ElementsAre(4, 0));
  options.threshold = 0.2;
  EXPECT_THAT(labels_of(options), ElementsAre(4, 4));
  options.threshold = 1;
  EXPECT_THAT(labels_of(options), ElementsAre(0, 0));
}

constexpr float kNone = -std::numeric_limits<float>::infinity();

TEST(Decode, WhereNoWindowLayIsBackground) {
  const std::vector<float> logits(kChannels, kNone);
  const auto written = [&](DecodeOptions options) {
    options.output = Output::kProbabilities;
    std::vector<float> out(kChannels);
    decode(reinterpret_cast<std::byte*>(out.data()), logits.data(), kChannels, 1, options);
    return out;
  };
  EXPECT_THAT(written({}), ElementsAre(1, 0, 0));
  EXPECT_THAT(written({.label_channels = {{1, 2}}, .value_channels = {0}}), ElementsAre(0, 1, 0));
  EXPECT_THAT(written({.label_channels = {{0}}}), ElementsAre(0, 0, 0));
  EXPECT_THAT(written({.label_channels = std::vector<int64_t>{}}), ElementsAre(0, 0, 0));
  EXPECT_THAT(written({.softmax = false}), ElementsAre(0, 0, 0));
  EXPECT_THAT(written({.regression = true}), ElementsAre(0, 0, 0));
  for (const DecodeOptions& options :
       {DecodeOptions{}, {.threshold = 0, .label_channels = {{1}}}, {.label_channels = {{1, 2}}}}) {
    uint8_t label = 9;
    decode(reinterpret_cast<std::byte*>(&label), logits.data(), kChannels, 1, options);
    EXPECT_EQ(label, 0);
  }
}

TEST(Decode, WhatIsInterpolatedIsFiniteAndAsLikely) {
  const std::vector<float> logits(kChannels, kNone);
  const auto finite = [&](const DecodeOptions& options) {
    std::vector<float> out(kChannels);
    make_finite(out.data(), logits.data(), kChannels, 1, options);
    return out;
  };
  EXPECT_THAT(finite({}), ElementsAre(0, -100, -100));
  EXPECT_THAT(finite({.label_channels = {{0}}, .value_channels = {2}}), ElementsAre(-100, -100, 0));
  const DecodeOptions values{.regression = true};
  EXPECT_THAT(finite(values), ElementsAre(0, 0, 0));
  const float deep = -300;
  float out = 0;
  make_finite(&out, &deep, 1, 1, values);
  EXPECT_EQ(out, deep);
}

Logits row_of(std::vector<std::vector<float>> channels) {
  const auto voxels = static_cast<int64_t>(channels.front().size());
  Logits logits{std::ssize(channels), {1, 1, voxels}, Buffer(std::ssize(channels) * voxels * 4)};
  float* out = logits.data.as<float>();
  for (const std::vector<float>& channel : channels) out = std::copy(channel.begin(), channel.end(), out);
  return logits;
}

std::vector<uint32_t> objects_in(const Logits& logits, const DecodeOptions& options, const std::string& step,
                                 const std::string& cut = "") {
  std::vector<PostOptions> steps{PostOptions{step, {}}};
  if (!cut.empty()) steps.insert(steps.begin(), PostOptions{cut, {}});
  const Volume objects = objects_of(logits, options, PostChain(steps));
  const uint32_t* const first = objects.data.as<uint32_t>();
  return {first, first + logits.extent.voxels()};
}

TEST(Objects, AreMadeOfTheForegroundWhereverItIs) {
  const std::vector<float> inside{5, 5, -5, 5, 5, 5}, edge{-5, -5, -5, 5, -5, -5}, zero(6), other(6, 9.0F);
  const auto expected = ElementsAre(1, 1, 0, 2, 2, 2);
  EXPECT_THAT(objects_in(row_of({inside, edge}), {}, "watershed"), expected);  // as they come
  EXPECT_THAT(objects_in(row_of({inside}), {.label_channels = {{0}}}, "watershed"), expected);
  DecodeOptions apart{.label_channels = {{1}}};
  apart.boundary_channels = {0};
  EXPECT_THAT(objects_in(row_of({edge, inside, other}), apart, "watershed"), expected);
  for (const char* const cut : {"threshold", "hysteresis"})
    EXPECT_THAT(objects_in(row_of({edge, inside, other}), apart, "watershed", cut), expected);
  EXPECT_THAT(objects_in(row_of({zero, inside}), {.label_channels = {{0, 1}}}, "watershed"), expected);
  DecodeOptions sigmoids{.label_channels = {{0, 2}}, .softmax = false};
  sigmoids.background_channel = false;
  const std::vector<float> left{5, 5, -5, -5, -5, -5}, right{-5, -5, -5, 5, 5, 5};
  EXPECT_THAT(objects_in(row_of({left, other, right}), sigmoids, "watershed"), expected);
}

TEST(Objects, AreNotFloodedWhereNothingIsKnownToBeForeground) {
  DecodeOptions options{.label_channels = std::vector<int64_t>{}};
  options.boundary_channels = {0};
  const Logits logits = row_of({std::vector<float>(6, 5.0F), std::vector<float>(6, 5.0F)});
  EXPECT_THROW(objects_in(logits, options, "watershed"), Error);
}

TEST(Objects, OfAffinitiesAreNowhereWhereNoWindowLay) {
  const std::vector<float> across(6, -5.0F), along{0, 5, -5, 5, -100, -100}, unseen{-5, -5, -5, -5, -100, -100};
  DecodeOptions options{.label_channels = std::vector<int64_t>{}};
  options.affinity_channels = {1, 2, 3};
  const Logits logits = row_of({across, unseen, unseen, along});
  const auto some = testing::Gt(0U);
  EXPECT_THAT(objects_in(logits, options, "mutex_watershed"), ElementsAre(some, some, some, some, 0, 0));
}

TEST(Decode, ValuesAreWhatTheLossCompared) {
  const auto near = [](double value) { return testing::FloatNear(static_cast<float>(value), 1e-6F); };
  EXPECT_THAT(probabilities_of({.regression = true, .tanh_channels = {0, 2}}),
              ElementsAre(near(std::tanh(2)), near(std::tanh(-1)), -3, 4, near(std::tanh(1)), near(std::tanh(-2))));
  const DecodeOptions beside{.label_channels = {{0}}, .value_channels = {1, 2}, .tanh_channels = {2}};
  EXPECT_THAT(probabilities_of(beside),
              ElementsAre(near(chance(2)), near(chance(-1)), -3, 4, near(std::tanh(1)), near(std::tanh(-2))));
}

// As (name: mse, target: foreground) learns: the output itself is near 0 or 1.
TEST(Decode, ValuesOfZeroAndOneAreCutAtTheThreshold) {
  const std::vector<float> values{0.2F, 0.4F, 0.6F, 1.3F, -0.5F};
  const auto labels = [&](const DecodeOptions& options) {
    std::vector<uint8_t> found(values.size());
    decode(reinterpret_cast<std::byte*>(found.data()), values.data(), 1, std::ssize(values), options);
    return found;
  };
  EXPECT_THAT(labels({.label_channels = {{0}}, .value_channels = {0}}), ElementsAre(0, 0, 1, 1, 0));
  EXPECT_THAT(labels({.threshold = 0.3, .label_channels = {{0}}, .value_channels = {0}}), ElementsAre(0, 1, 1, 1, 0));
  EXPECT_THAT(labels({.label_channels = {{0}}, .value_channels = {0}, .tanh_channels = {0}}),
              ElementsAre(0, 0, 1, 1, 0));
  EXPECT_THAT(labels({.label_channels = {{0}}}), ElementsAre(1, 1, 1, 1, 0)) << "logits";
}

// A learner of such values leaves 0.1 of the 0 between two objects; as logits these would be chances above a half.
TEST(Objects, OfAffinitiesThatAreValuesAreThoseOfTheirChances) {
  const std::vector<float> none(6), along{0, 1, 1, 0.1F, 1, 1}, far{0, 0, 1, 0.05F, 0.05F, 1};
  DecodeOptions options{.label_channels = std::vector<int64_t>{}, .value_channels = {0, 1, 2, 3, 4, 5}};
  options.affinity_channels = {0, 1, 2, 3, 4, 5};
  const Options recipe = parse_config(
                             "inference: {postprocess: [{name: mutex_watershed, "
                             "offsets: [[1, 0, 0], [0, 1, 0], [0, 0, 1], [2, 0, 0], [0, 2, 0], [0, 0, 2]]}]}",
                             "/")
                             .options;
  const Logits values = row_of({none, none, along, none, none, far});
  const Volume objects = objects_of(values, options, PostChain(recipe.inference.postprocess));
  const uint32_t* const found = objects.data.as<uint32_t>();
  EXPECT_THAT(std::vector(found, found + 6), ElementsAre(1, 1, 1, 2, 2, 2));
}

}  // namespace
}  // namespace vox
