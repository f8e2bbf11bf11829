#include "measure/queue_model.h"

#include <gtest/gtest.h>

#include <cmath>

#include "measure/profile_spans.h"
#include "measure/statistics.h"

namespace vox {
namespace {

TEST(QueueModel, EvenTimesGiveTheSlowerSide) {
  for (const int workers : {1, 2, 5}) {
    for (const double step_ms : {1.0, 20.0, 300.0}) {
      const QueueModel model{.sample_ms = {10}, .samples_per_batch = 4, .workers = workers, .step_ms = step_ms};
      EXPECT_NEAR(predicted_step_ms(model), std::max(step_ms, 4 * 10.0 / workers), 0.02 * step_ms + 0.5);
    }
  }
}

TEST(QueueModel, AccumulationTakesSeveralBatchesAStep) {
  const QueueModel model{.sample_ms = {7}, .samples_per_batch = 2, .batches_per_step = 3, .step_ms = 5};
  EXPECT_NEAR(predicted_step_ms(model), 2 * 3 * 7, 0.5);
}

TEST(QueueModel, MoreBatchesAheadBridgeRareSlowSamples) {
  QueueModel model{.sample_ms = {1, 1, 1, 1, 1, 1, 1, 50}, .workers = 1, .batches_in_flight = 2, .step_ms = 10};
  const double mean = 57.0 / 8, tight = predicted_step_ms(model);
  model.batches_in_flight = 40;
  EXPECT_GT(tight, 1.2 * 10);
  EXPECT_LT(predicted_step_ms(model), 1.1 * std::max(10.0, mean));
}

TEST(SpanSums, ASpanTakesItsTimeAwayFromTheOneAround) {
  const auto ms = [](double value) { return static_cast<int64_t>(value * 1e6); };
  const std::vector<SpanRecord> spans{
      {kStepSpan, 0, ms(0), ms(100), ms(60)},   {"forward", 0, ms(10), ms(40), ms(30)},
      {"loss", 0, ms(40), ms(60), ms(20)},      {"loss.dice", 0, ms(45), ms(55), ms(10)},
      {"sample_read", 1, ms(0), ms(50), ms(5)}, {"fetch", 1, ms(5), ms(45), ms(2)},
      {"storage", 1, ms(10), ms(40), ms(1)},    {"sample_fill", 1, ms(50), ms(60), ms(10)},
      {"checkpoint_write", 2, ms(0), ms(9), 0}, {"forward", 0, ms(-5), ms(-1), 0}};
  const SpanSums sums = sum_spans(spans);
  ASSERT_EQ(sums.steps.size(), 1u);
  EXPECT_DOUBLE_EQ(sums.steps[0].at("other").self_ms, 50);
  EXPECT_DOUBLE_EQ(sums.steps[0].at("forward").self_ms, 30);
  EXPECT_DOUBLE_EQ(sums.steps[0].at("loss").self_ms, 10);
  EXPECT_DOUBLE_EQ(sums.steps[0].at("loss.dice").self_ms, 10);
  EXPECT_DOUBLE_EQ(sums.data.at("fetch").self_ms, 10);
  EXPECT_DOUBLE_EQ(sums.storage_wait_ms, 29);
  EXPECT_DOUBLE_EQ(sums.data_busy_ms, 60);
  ASSERT_EQ(sums.sample_ms.size(), 1u);
  EXPECT_DOUBLE_EQ(sums.sample_ms[0], 30 + 4 + 10);  // the disk's time, the rest of the reader's CPU, the filling
  EXPECT_DOUBLE_EQ(sums.background.at("checkpoint_write").self_ms, 9);
}

TEST(Statistics, AMedianAndWhatItIsWorth) {
  EXPECT_DOUBLE_EQ(median_of({3, 1, 2, 10}), 2.5);
  const Interval same = median_interval({4, 4, 4, 4});
  EXPECT_DOUBLE_EQ(same.low, 4);
  EXPECT_DOUBLE_EQ(same.high, 4);
  const Interval six = median_interval({6, 2, 3, 1, 5, 4});  // outside of all six with 2 / 2^6: 3 %
  EXPECT_DOUBLE_EQ(six.low, 1);
  EXPECT_DOUBLE_EQ(six.high, 6);
  const Interval nine = median_interval({9, 8, 7, 6, 5, 4, 3, 2, 1});  // 2 (1 + 9) / 2^9: 4 %; one further in, 18 %
  EXPECT_DOUBLE_EQ(nine.low, 2);
  EXPECT_DOUBLE_EQ(nine.high, 8);
}

double chance_of_at_most(size_t heads, size_t count) {  // of fair coins
  double one = std::exp2(-static_cast<double>(count)), sum = 0;
  for (size_t i = 0; i <= heads; ++i) {
    sum += one;
    one *= static_cast<double>(count - i) / static_cast<double>(i + 1);
  }
  return sum;
}

TEST(Statistics, AnIntervalPromisesWhatItSays) {
  std::vector<double> values;
  for (size_t count = 1; count <= 900; ++count) {
    values.push_back(static_cast<double>(count));
    const auto rank = static_cast<size_t>(median_interval(values).low) - 1;
    const double coverage = 1 - 2 * chance_of_at_most(rank, count);
    EXPECT_GE(coverage, count < kLeastForInterval ? 0 : 0.95) << count;
    EXPECT_GE(100 * coverage, std::stod(coverage_text(count)) - 1e-9) << count;
  }
  EXPECT_EQ(coverage_text(3), "75 %");
  EXPECT_EQ(coverage_text(5), "93 %");
  EXPECT_EQ(coverage_text(6), "95 %");
}

}  // namespace
}  // namespace vox
