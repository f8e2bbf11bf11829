#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>

#include "base/error.h"
#include "base/thread_pool.h"
#include "metrics/confusion.h"
#include "metrics/metric.h"

namespace vox {
namespace {

Volume random_labels(const Extent3& extent, int labels, uint32_t seed) {
  Volume volume = allocate_volume({.dtype = DType::kUInt8, .extent = extent});
  std::mt19937 random(seed);
  for (int64_t i = 0; i < extent.voxels(); ++i)
    volume.data.as<uint8_t>()[i] = static_cast<uint8_t>(random() % static_cast<uint32_t>(labels));
  return volume;
}

Volume filled(const Extent3& extent, uint8_t label) {
  Volume volume = allocate_volume({.dtype = DType::kUInt8, .extent = extent});
  std::fill_n(volume.data.as<uint8_t>(), extent.voxels(), label);
  return volume;
}

Scores segmentation(const Volume& prediction, const Volume& reference, const MetricOptions& options = {}) {
  ThreadPool pool(2);
  return find_metric("segmentation").evaluate(source_of(prediction, "p"), source_of(reference, "r"), options, pool);
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// From sets of voxels, as a textbook says it.
double dice_of_sets(const Volume& a, const Volume& b, uint8_t label, std::optional<uint8_t> ignored) {
  std::set<int64_t> in_a, in_b, in_both;
  for (int64_t i = 0; i < a.info.voxels(); ++i) {
    if (ignored && b.as<uint8_t>()[i] == *ignored) continue;
    if (a.as<uint8_t>()[i] == label) in_a.insert(i);
    if (b.as<uint8_t>()[i] == label) in_b.insert(i);
    if (in_a.count(i) && in_b.count(i)) in_both.insert(i);
  }
  return 2.0 * static_cast<double>(in_both.size()) / static_cast<double>(in_a.size() + in_b.size());
}

TEST(Segmentation, DiceOfEachClassIsThatOfSetsOfVoxels) {
  const Extent3 extent{5, 7, 9};
  const Volume prediction = random_labels(extent, 4, 1), reference = random_labels(extent, 4, 2);
  const Scores scores = segmentation(prediction, reference);
  double sum = 0;
  for (uint8_t label = 1; label <= 3; ++label) {
    const double expected = dice_of_sets(prediction, reference, label, std::nullopt);
    EXPECT_DOUBLE_EQ(scores.classes.at(std::to_string(label)).at("dice"), expected);
    sum += expected;
  }
  EXPECT_NEAR(scores.values.at("dice"), sum / 3, 1e-12);
  EXPECT_EQ(scores.classes.size(), 3u);
}

TEST(Segmentation, IgnoredVoxelsCountNowhere) {
  const Extent3 extent{5, 7, 9};
  const Volume prediction = random_labels(extent, 2, 1), reference = random_labels(extent, 3, 2);
  const Scores scores = segmentation(prediction, reference, {.ignore_label = 2});
  EXPECT_DOUBLE_EQ(scores.values.at("dice"), dice_of_sets(prediction, reference, 1, 2));
  EXPECT_EQ(scores.classes.size(), 1u);
  // Where all but the objects is ignored, background in their place is a miss.
  const Scores objects = segmentation(prediction, reference, {.ignore_label = 0});
  EXPECT_DOUBLE_EQ(objects.classes.at("1").at("dice"), dice_of_sets(prediction, reference, 1, 0));
}

TEST(Segmentation, ManySlabsCountAsOne) {
  const Extent3 extent{9, 1024, 1030};  // more than two slabs
  const Volume prediction = random_labels(extent, 3, 3), reference = random_labels(extent, 3, 4);
  ConfusionCounts whole;
  count_confusion(whole, {.data = prediction.data.data(), .where = "p"}, {.data = reference.data.data(), .where = "r"},
                  extent.voxels());
  EXPECT_DOUBLE_EQ(segmentation(prediction, reference).values.at("iou"), whole.iou());
}

TEST(Segmentation, EmptyMasksScoreOneTogetherAndZeroAlone) {
  const Extent3 extent{2, 3, 4};
  EXPECT_EQ(segmentation(filled(extent, 0), filled(extent, 0)).values.at("dice"), 1);
  const Scores missed = segmentation(filled(extent, 0), filled(extent, 1));
  const Scores invented = segmentation(filled(extent, 1), filled(extent, 0));
  for (const Scores& scores : {missed, invented}) {
    for (const char* name : {"dice", "iou", "precision", "recall"}) EXPECT_EQ(scores.values.at(name), 0) << name;
    EXPECT_DOUBLE_EQ(scores.values.at("hd95"), std::sqrt(4.0 + 9 + 16));
  }
}

TEST(Segmentation, RefusesWhatCannotBeCompared) {
  const Extent3 extent{2, 3, 4};
  const auto compare = [](const Volume& p, const Volume& r, const MetricOptions& options = {}) {
    return error_of([&] { segmentation(p, r, options); });
  };
  EXPECT_NE(compare(filled({2, 3, 5}, 1), filled(extent, 1)).find("2x3x5"), std::string::npos);
  EXPECT_NE(compare(filled(extent, 255), filled(extent, 1)).find("unknown labels"), std::string::npos);
  EXPECT_NE(compare(filled(extent, 2), filled(extent, 1), {.ignore_label = 2}).find("ignore label 2"),
            std::string::npos);
  Volume fractions = allocate_volume({.dtype = DType::kFloat32, .extent = extent});
  std::fill_n(fractions.data.as<float>(), extent.voxels(), 0.25f);
  EXPECT_NE(compare(fractions, filled(extent, 1)).find("0.25"), std::string::npos);
}

TEST(Confusion, PartsMergeToTheWhole) {
  const Extent3 extent{4, 5, 6};
  const Volume p = random_labels(extent, 5, 5), r = random_labels(extent, 5, 6);
  const auto count = [&](int64_t first, int64_t number) {
    ConfusionCounts counts;
    count_confusion(counts, {.data = p.as<uint8_t>() + first, .where = "p"},
                    {.data = r.as<uint8_t>() + first, .where = "r"}, number);
    return counts;
  };
  ConfusionCounts merged = count(0, 37);
  merged.merge(count(37, extent.voxels() - 37));
  EXPECT_EQ(merged.classes, count(0, extent.voxels()).classes);
  EXPECT_EQ(merged.of(77), ClassCounts{});
}

// A reference with what any task may ask for beside it.
struct Patient {
  Volume dose, mask, target, organ;

  VolumeSource source() const {
    VolumeSource reference = source_of(dose, "r");
    reference.parts = {source_of(mask, "possible_dose_mask"), source_of(target, "PTV70"), source_of(organ, "Larynx")};
    return reference;
  }
};

Patient random_patient(const Extent3& extent, uint32_t seed) {
  Patient patient{random_labels(extent, 2, seed), filled(extent, 1), random_labels(extent, 2, seed + 1),
                  random_labels(extent, 2, seed + 2)};
  patient.dose.info.spacing = Spacing3{2, 3, 4};
  return patient;
}

// Half of it is missing.
Volume upper_half(const Volume& volume) {
  Volume half = filled(volume.info.extent, 0);
  std::copy_n(volume.as<uint8_t>(), volume.info.voxels() / 2, half.data.as<uint8_t>());
  return half;
}

TEST(Metrics, EveryTaskGivesItsScoresAndIsBestForAPerfectPrediction) {
  const Patient patient = random_patient({12, 10, 14}, 7);
  const Volume wrong = upper_half(random_labels({12, 10, 14}, 2, 11));
  ThreadPool pool(1);
  for (const MetricEntry& entry : all_metrics()) {
    EXPECT_FALSE(entry.help.empty()) << entry.name;
    const VolumeSource reference = patient.source();
    const Scores right = entry.evaluate(source_of(patient.dose, "p"), reference, MetricOptions{}, pool);
    const Scores other = entry.evaluate(source_of(wrong, "p"), reference, MetricOptions{}, pool);
    for (const ScoreInfo& score : entry.scores) {
      const bool higher = score.better == ScoreInfo::Better::kHigher;
      const double best = right.values.at(score.name), worse = other.values.at(score.name);
      EXPECT_TRUE(higher ? best > worse : best < worse) << entry.name << " " << score.name;
    }
    const Scores mean = entry.mean({right, other});  // as many entries in each: pooling and averaging agree
    for (const auto& [name, value] : mean.values)
      EXPECT_NEAR(value, (right.values.at(name) + other.values.at(name)) / 2, 1e-12) << name;
  }
}

TEST(Dose, PointsArePooledOverPatientsAndNotAveraged) {
  ThreadPool pool(1);
  Patient many = random_patient({4, 5, 6}, 21), one = random_patient({4, 5, 6}, 31);
  one.organ = filled({4, 5, 6}, 0);  // not contoured: three points instead of five
  const Volume zero = filled({4, 5, 6}, 0);
  const MetricEntry& dose = find_metric("dose");
  const Scores a = dose.evaluate(source_of(zero, "p"), many.source(), {}, pool);
  const Scores b = dose.evaluate(source_of(zero, "p"), one.source(), {}, pool);
  EXPECT_EQ(b.classes.count("Larynx"), 0u);
  EXPECT_NEAR(dose.mean({a, b}).values.at("dvh_score"),
              (5 * a.values.at("dvh_score") + 3 * b.values.at("dvh_score")) / 8, 1e-12);
  EXPECT_NEAR(dose.mean({a, b}).values.at("dose_score"), (a.values.at("dose_error") + b.values.at("dose_error")) / 2,
              1e-12);
}

TEST(Dose, RefusesAReferenceThatIsNoPatient) {
  ThreadPool pool(1);
  const Volume dose = filled({4, 5, 6}, 1);
  EXPECT_NE(error_of([&] {
              find_metric("dose").evaluate(source_of(dose, "p"), source_of(dose, "r"), {}, pool);
            }).find("OpenKBP folder"),
            std::string::npos);
}

TEST(Metrics, AnUnknownTaskIsNamedWithTheKnownOnes) {
  const std::string message = error_of([] { find_metric("speed"); });
  EXPECT_NE(message.find("does not know the task \"speed\""), std::string::npos);
  EXPECT_NE(message.find("segmentation"), std::string::npos);
}

}  // namespace
}  // namespace vox
