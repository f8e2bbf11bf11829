#include "report/run_writer.h"

#include <gtest/gtest.h>

#include "report/test_folder.h"

namespace vox {
namespace {

TEST(RunWriter, ARunIsLoadingUntilItSaysOtherwise) {
  const TestFolder folder;
  const RunFolder run = RunFolder::create(folder.path(), "demo");
  for (int start = 0; start < 2; ++start) {
    RunWriter writer(run, {});
    writer.finish(RunState::kStopped);
    EXPECT_EQ(read_status(run).value().phase, "loading");
  }
  RunWriter writer(run, {});
  writer.update({.step = 1});
  writer.finish(RunState::kFinished);
  EXPECT_EQ(read_status(run).value().phase, "training");
}

TEST(RunWriter, AProcessThatDoesNothingLeavesTheNumbersOfTheOneBefore) {
  const TestFolder folder;
  const RunFolder run = RunFolder::create(folder.path(), "demo");
  {
    RunWriter writer(run, {});
    writer.step_done(12);
    writer.update({.step = 12, .total_steps = 12, .epoch = 2, .total_epochs = 2, .loss = 0.5, .eta_s = 3});
    writer.finish(RunState::kFinished);
  }
  RunWriter(run, {}).finish(RunState::kFinished);
  const RunStatus idle = read_status(run).value();
  EXPECT_EQ(idle.step, 12);
  EXPECT_EQ(idle.total_steps, 12);
  EXPECT_EQ(idle.total_epochs, 2);
  EXPECT_EQ(idle.loss, 0.5);
  EXPECT_EQ(idle.eta_s, std::nullopt);
  {
    RunWriter writer(run, {});
    writer.step_done(1);  // started anew
    writer.finish(RunState::kStopped);
  }
  EXPECT_EQ(read_status(run).value().step, 1);
}

}  // namespace
}  // namespace vox
