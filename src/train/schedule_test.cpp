// Each schedule against its closed form, written here once more.
#include "train/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "base/error.h"

namespace vox {
namespace {

TrainingOptions scheduled(const std::string& name) {
  TrainingOptions options;
  options.schedule = name;
  options.lr = 0.01;
  return options;
}

constexpr ScheduleLength kLength{1000, 50};

TEST(Schedule, EveryScheduleStartsAboveZeroAndStaysFinite) {
  for (const std::string& name : schedule_names()) {
    for (const int64_t warmup : {0, 100}) {
      TrainingOptions options = scheduled(name);
      options.warmup_steps = warmup;
      const Schedule schedule(options, kLength);
      EXPECT_GT(schedule.lr(0), 0) << name;
      for (int64_t step = 0; step <= 1200; ++step) {
        const double lr = schedule.lr(step);
        ASSERT_TRUE(lr >= 0 && lr <= 0.01 * (1 + 1e-12)) << name << step;
      }
    }
  }
}

TEST(Schedule, PolyIsNnUNets) {
  const Schedule schedule(scheduled("poly"), kLength);
  for (const int64_t step : {0, 1, 499, 999}) {
    EXPECT_DOUBLE_EQ(schedule.lr(step), 0.01 * std::pow(1 - static_cast<double>(step) / 1000, 0.9));
  }
  EXPECT_EQ(schedule.lr(1000), 0);
}

TEST(Schedule, CosineEndsAtTheLowestRate) {
  TrainingOptions options = scheduled("cosine");
  options.min_lr = 0.001;
  const Schedule schedule(options, kLength);
  for (const int64_t step : {0, 250, 500, 1000}) {
    const double expected = 0.001 + 0.009 * (1 + std::cos(std::numbers::pi * static_cast<double>(step) / 1000)) / 2;
    EXPECT_NEAR(schedule.lr(step), expected, 1e-15);
  }
}

TEST(Schedule, WarmUpRisesLinearlyFromItsStartThenTheScheduleBegins) {
  TrainingOptions options = scheduled("warmup_cosine");
  options.warmup_steps = 100;
  options.warmup_start = 0.1;
  const Schedule schedule(options, kLength);
  EXPECT_DOUBLE_EQ(schedule.lr(0), 0.001);
  EXPECT_DOUBLE_EQ(schedule.lr(50), 0.0055);
  EXPECT_DOUBLE_EQ(schedule.lr(100), 0.01);
  EXPECT_NEAR(schedule.lr(550), 0.005, 1e-15);
  EXPECT_NEAR(schedule.lr(1000), 0, 1e-15);
  options.warmup_start = 0;
  EXPECT_THROW(Schedule(options, kLength), Error);
}

TEST(Schedule, CoolingDownFollowsAnyScheduleToTheLowestRate) {
  for (const std::string& name : schedule_names()) {
    TrainingOptions options = scheduled(name);
    options.min_lr = 0.0001;
    const Schedule without(options, kLength);
    options.cooldown_steps = 200;
    const Schedule with(options, kLength);
    for (const int64_t step : {0, 500, 800}) EXPECT_DOUBLE_EQ(with.lr(step), without.lr(step)) << name << step;
    for (const int64_t step : {801, 900, 950, 999})
      EXPECT_NEAR(with.lr(step), 0.0001 + (without.lr(step) - 0.0001) * static_cast<double>(1000 - step) / 200, 1e-15)
          << name << step;
    EXPECT_DOUBLE_EQ(with.lr(1000), 0.0001) << name;
  }
}

TEST(Schedule, StepAndMultistepCountEpochs) {
  TrainingOptions options = scheduled("step");
  options.step_size = 3;
  options.gamma = 0.5;
  const Schedule step(options, kLength);
  EXPECT_DOUBLE_EQ(step.lr(149), 0.01);
  EXPECT_DOUBLE_EQ(step.lr(150), 0.005);
  EXPECT_DOUBLE_EQ(step.lr(300), 0.0025);
  options.schedule = "multistep";
  options.milestones = {2, 10};
  const Schedule multistep(options, kLength);
  EXPECT_DOUBLE_EQ(multistep.lr(99), 0.01);
  EXPECT_DOUBLE_EQ(multistep.lr(100), 0.005);
  EXPECT_DOUBLE_EQ(multistep.lr(500), 0.0025);
}

TEST(Schedule, PlateauFallsAfterItsPatienceAndComesBackFromItsState) {
  TrainingOptions options = scheduled("plateau");
  options.plateau_patience = 2;
  Schedule schedule(options, kLength);
  for (const double score : {0.5, 0.6, 0.6, 0.55}) schedule.report(score, true);
  EXPECT_DOUBLE_EQ(schedule.lr(10), 0.01);
  schedule.report(0.6, true);
  EXPECT_DOUBLE_EQ(schedule.lr(10), 0.001);
  Schedule resumed(options, kLength);
  resumed.restore(schedule.state());
  EXPECT_DOUBLE_EQ(resumed.lr(10), 0.001);
  Schedule lower(options, kLength);
  for (const double loss : {3.0, 2.0, 1.0, 0.5}) lower.report(loss, false);
  EXPECT_DOUBLE_EQ(lower.lr(10), 0.01);
}

// torch.optim.lr_scheduler.OneCycleLR(max_lr=0.01, total_steps=1000): values printed by torch 2.13.
TEST(Schedule, OneCycleIsTorchs) {
  const Schedule schedule(scheduled("one_cycle"), kLength);
  EXPECT_NEAR(schedule.lr(0), 0.0003999999999999993, 1e-15);
  EXPECT_NEAR(schedule.lr(100), 0.002814573614486898, 1e-12);
  EXPECT_NEAR(schedule.lr(299), 0.01, 1e-12);
  EXPECT_NEAR(schedule.lr(300), 0.009999949645161448, 1e-12);
  EXPECT_NEAR(schedule.lr(700), 0.003865553815403509, 1e-12);
  EXPECT_NEAR(schedule.lr(999), 4e-08, 1e-12);
}

TEST(Schedule, AnUnknownNameIsRefused) {
  EXPECT_THROW(Schedule(scheduled("cosin"), kLength), Error);
}

}  // namespace
}  // namespace vox
