// What a run may use of a machine, and what a training really does, bounds what a profile concludes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <sstream>

#include "measure/machine_load.h"
#include "measure/profile_model.h"

namespace vox {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kMeasuredSteps = 10;

TEST(MachineLoad, CountsTheAllowedCpusOnly) {
  const std::string text =
      "cpu  1000 0 0 5 0 0 0 0 0 0\n"
      "cpu0 100 10 20 5 7 1 2 3 0 0\n"
      "cpu1 200 0 0 5 0 0 0 0 0 0\n"
      "cpu12 700 0 0 5 0 0 0 0 0 0\n"
      "intr 5 6 7\n";
  const auto ticks_on = [&](const std::vector<int>& cpus) {
    std::istringstream stat(text);
    return machine_cpu_ms(stat, cpus) * static_cast<double>(sysconf(_SC_CLK_TCK)) / 1e3;
  };
  EXPECT_DOUBLE_EQ(ticks_on({0}), 136) << "without idling and waiting for a disk";
  EXPECT_DOUBLE_EQ(ticks_on({1, 12}), 900);
  EXPECT_DOUBLE_EQ(ticks_on({40, 41}), 1000) << "a container may number its CPUs anew";
}

TEST(MachineLoad, OthersTakeWhatThisRunHasNoRoomBeside) {
  EXPECT_DOUBLE_EQ(taken_cpus(1.5, 4, 4), 1.5);
  EXPECT_DOUBLE_EQ(taken_cpus(40, 64, 4), 0) << "a quota of 4 CPUs' time on 64, of which 24 are free";
  EXPECT_DOUBLE_EQ(taken_cpus(62, 64, 4), 2);
  EXPECT_DOUBLE_EQ(taken_cpus(90, 64, 4), 4);
}

// A step that waits for its samples, each 20 ms of one of so many CPUs.
StepRecord waiting_record(int cpus, int workers) {
  StepRecord record;
  record.on_gpu = true;
  record.steps = kMeasuredSteps;
  record.cpus = cpus;
  record.data_threads = workers;
  record.compute_threads = 1;
  record.sums.sample_ms.assign(kMeasuredSteps, 20.0);
  const double step_ms = 20.0 / workers;
  record.sums.steps.assign(kMeasuredSteps,
                           StageTable{{"data_wait", {1, step_ms - 0.2, 0}}, {"forward", {1, 0.2, 0.2}}});
  record.wall_ms = step_ms * kMeasuredSteps;
  record.cpu_ms = 20 * kMeasuredSteps;
  record.alone_ms = 0.2;
  return record;
}

TEST(Suggestions, NoMoreWorkersThanTheRunWouldGet) {
  Options options;
  options.data.num_workers = 2;
  options.data.prefetch_factor = 30;
  StepRecord record = waiting_record(16, 2);
  const auto first = [&] { return conclude(record, options).suggestions.at(0).changes; };
  EXPECT_THAT(first(), ElementsAre(testing::AnyOf("data.num_workers=13", "data.num_workers=9")));
  options.system.num_cpus = record.cpus = 7;
  record.most_data_threads = most_data_threads(options, ComputeOn::kGpu);
  EXPECT_EQ(record.most_data_threads, 5) << "two of the seven compute";
  EXPECT_THAT(first(), ElementsAre("data.num_workers=4"));
  EXPECT_EQ(most_data_threads(Options{}, ComputeOn::kGpu), kUnbounded);
}

TEST(Suggestions, ACacheHasToFitIntoWhatIsSpare) {
  constexpr int64_t kGib = int64_t{1} << 30;
  Options options;
  options.data.cache_gb = 1;
  StepRecord record;
  record.after.volume_bytes = 20 * kGib;
  record.spare_bytes = 64 * kGib;
  EXPECT_NEAR(whole_cache_gb(record, options).value(), 23.3, 1e-9);
  record.spare_bytes = 8 * kGib;
  EXPECT_EQ(whole_cache_gb(record, options), std::nullopt);
}

// Steps of 10 ms in epochs of 5; none was saved while they were measured.
StepRecord saving_record(double snapshot_ms, std::optional<double> write_ms) {
  StepRecord record;
  record.steps = kMeasuredSteps;
  record.steps_per_epoch = 5;
  record.data_threads = record.compute_threads = 1;
  record.cpus = 2;
  record.sums.steps.assign(kMeasuredSteps, StageTable{{"forward", {1, 10, 10}}});
  record.wall_ms = record.cpu_ms = 10 * kMeasuredSteps;
  record.checkpoint_ms = snapshot_ms;
  record.checkpoint_write_ms = write_ms;
  return record;
}

Options saved_every(int64_t epochs) {
  Options options;
  options.training.save_every = epochs;
  return options;
}

TEST(Checkpoints, AreChargedAsOftenAsATrainingSaves) {
  const StepRecord fast = saving_record(50, std::nullopt), slow = saving_record(50, 110);
  EXPECT_DOUBLE_EQ(steps_between_checkpoints(fast, {}), 5) << "nothing is known of its writing";
  EXPECT_DOUBLE_EQ(steps_between_checkpoints(slow, {}), 110) << "ten times 110 ms are 22 epochs";
  EXPECT_DOUBLE_EQ(steps_between_checkpoints(slow, saved_every(3)), 15);
  EXPECT_DOUBLE_EQ(steps_between_checkpoints(slow, saved_every(30)), 110) << "the last one is long enough ago";
  EXPECT_NEAR(stage_ms(conclude(slow, {}).step_stages, "checkpoint"), 50 / 110.0, 1e-9);
  EXPECT_EQ(conclude(slow, {}).bottleneck.name, "gpu_compute");
  const Profile often = conclude(slow, saved_every(1));
  EXPECT_EQ(often.bottleneck.name, "checkpoint");
  EXPECT_THAT(often.bottleneck.evidence, HasSubstr("one checkpoint every 5 steps"));
}

TEST(Checkpoints, ThatWereSavedMeanwhileCameAsTheyDo) {
  StepRecord record = saving_record(0, std::nullopt);
  record.checkpoint_ms.reset();
  record.sums.steps[4]["checkpoint"] = record.sums.steps[9]["checkpoint"] = {1, 30, 30};
  record.sums.background["checkpoint_write"] = {2, 40, 40};
  EXPECT_DOUBLE_EQ(steps_between_checkpoints(record, {}), 5);
  EXPECT_DOUBLE_EQ(checkpoint_write_ms(record).value(), 20);
}

TEST(Checkpoints, WhoAskedForManyIsToldToKeepFewer) {
  const Profile profile = conclude(saving_record(60, 500), saved_every(1));
  ASSERT_EQ(profile.suggestions.size(), 1u);
  EXPECT_THAT(profile.suggestions[0].changes, ElementsAre("training.save_every=100"));
  EXPECT_TRUE(profile.suggestions[0].same_result);
  EXPECT_NEAR(profile.suggestions[0].predicted_step_ms, 10 + 60 / 500.0, 0.05);
  const Profile quick = conclude(saving_record(60, 50), saved_every(1));  // 50 steps on, one is due anyway
  ASSERT_EQ(quick.suggestions.size(), 1u);
  EXPECT_THAT(quick.suggestions[0].changes, ElementsAre("training.save_every=100"));
  EXPECT_NEAR(quick.suggestions[0].predicted_step_ms, 10 + 60 / 50.0, 0.05);
}

TEST(Checkpoints, WithoutThemTheStepIsWhatItWasWhileNothingWasSaved) {
  StepRecord record = saving_record(60, 500);
  record.quiet_ms = 8;
  const Profile profile = conclude(record, saved_every(1));
  EXPECT_NEAR(profile.suggestions.at(0).predicted_step_ms, 8 + 60 / 500.0, 0.1);
  record.quiet_ms = 30;  // somebody else was at work
  EXPECT_NEAR(conclude(record, saved_every(1)).suggestions.at(0).predicted_step_ms, 10 + 60 / 500.0, 0.05);
}

TEST(Rows, WithATenthOfThemTheStepIsAlmostWhatItWasWithoutAny) {
  StepRecord record = saving_record(0, std::nullopt);
  record.checkpoint_ms.reset();
  for (StageTable& step : record.sums.steps) step["logging"] = {1, 20, 1};
  record.wall_ms = 30 * kMeasuredSteps;
  const auto predicted = [&] { return conclude(record, {}).suggestions.at(0).predicted_step_ms; };
  EXPECT_NEAR(predicted(), 10 + 2, 0.1);
  record.quiet_ms = 8;
  EXPECT_NEAR(predicted(), 8 + 2, 0.1);
}

TEST(Checkpoints, LongerEpochsAreAsManyFewer) {
  Options options;
  options.training.max_epochs = 100;
  const auto suggested = [&] { return conclude(saving_record(5, std::nullopt), options).suggestions.at(0); };
  EXPECT_THAT(suggested().changes, ElementsAre("training.max_epochs=10", "training.iterations_per_epoch=50"));
  EXPECT_TRUE(suggested().same_result);
  options.training.max_epochs = 7;  // 35 steps
  EXPECT_FALSE(suggested().same_result);
}

}  // namespace
}  // namespace vox
