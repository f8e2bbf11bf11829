#include <gtest/gtest.h>

#include <cmath>

#include "base/thread_pool.h"
#include "metrics/contingency.h"
#include "metrics/metric.h"

namespace vox {
namespace {

Volume row_of(const std::vector<uint32_t>& labels) {
  Volume volume = allocate_volume({.dtype = DType::kUInt32, .extent = {1, 1, static_cast<int64_t>(labels.size())}});
  std::copy(labels.begin(), labels.end(), volume.data.as<uint32_t>());
  return volume;
}

Scores score(const std::vector<uint32_t>& prediction, const std::vector<uint32_t>& reference,
             const MetricOptions& options = {}) {
  ThreadPool pool(1);
  const Volume p = row_of(prediction), r = row_of(reference);
  return find_metric("instances").evaluate(source_of(p, "p"), source_of(r, "r"), options, pool);
}

TEST(Instances, ASplitInHalvesIsOneBitAndNoMerge) {
  const Scores scores = score({7, 7, 9, 9}, {1, 1, 1, 1});
  EXPECT_DOUBLE_EQ(scores.values.at("voi_split"), 1);
  EXPECT_DOUBLE_EQ(scores.values.at("voi_merge"), 0);
  // Pairs of voxels: 12 in the reference, 4 in the prediction, 4 in both.
  EXPECT_DOUBLE_EQ(scores.values.at("are"), 1 - 2 * 4.0 / 16);
}

TEST(Instances, MatchesAreCountedAtEachThreshold) {
  // Instance 1: IoU 3/4; instance 2: IoU 1; instance 3 is missed; 50 is invented.
  const Scores scores = score({40, 40, 40, 0, 20, 20, 0, 50}, {1, 1, 1, 1, 2, 2, 3, 0});
  EXPECT_DOUBLE_EQ(scores.values.at("ap50"), 2.0 / 4);
  EXPECT_DOUBLE_EQ(scores.values.at("ap75"), 2.0 / 4);
  EXPECT_DOUBLE_EQ(scores.classes.at("0.80").at("ap"), 1.0 / 5);
  EXPECT_DOUBLE_EQ(scores.values.at("ap"), (6 * 0.5 + 4 * 0.2) / 10);
  EXPECT_DOUBLE_EQ(scores.values.at("pq"), (0.75 + 1) / (2 + 0.5 + 0.5));
}

TEST(Instances, ExactHalvesMatchOnceForPrecisionAndNotForPanopticQuality) {
  const Scores scores = score({5, 6}, {1, 1});
  EXPECT_DOUBLE_EQ(scores.values.at("ap50"), 1.0 / 2);
  EXPECT_DOUBLE_EQ(scores.values.at("pq"), 0);
}

TEST(Instances, IgnoredVoxelsCountNowhere) {
  const Scores scores = score({7, 7, 1, 2, 3}, {1, 1, 9, 9, 9}, {.ignore_label = 9});
  EXPECT_EQ(scores.values.at("ap"), 1);
  EXPECT_EQ(scores.values.at("voi_split"), 0);
}

TEST(Instances, NothingInBothIsPerfect) {
  const Scores scores = score({0, 0}, {0, 0});
  EXPECT_EQ(scores.values.at("ap50"), 1);
  EXPECT_EQ(scores.values.at("pq"), 1);
  EXPECT_EQ(scores.values.at("are"), 0);
}

}  // namespace
}  // namespace vox
