// Processes that add up: against loops over what each of them brings, in their order.
#include "train/team.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include "base/error.h"

namespace vox {
namespace {

using testing::HasSubstr;

constexpr int kProcesses = 3;
constexpr int64_t kSteps = 20;

// What a process brings to a step: dense, not all of it in the order of its sizes.
std::vector<at::Tensor> brought(int index, int64_t step) {
  const at::Tensor base = at::arange(24, at::kFloat) * 0.1f + static_cast<float>(index + 1) * 1e-7f;
  const at::Tensor values = (base * static_cast<float>(step + 1)).sin();
  return {values.reshape({2, 3, 4}).permute({2, 0, 1}), values.narrow(0, 0, 1).clone().reshape({})};
}

bool sums_are_right(Team& team, int64_t step) {
  const std::vector<at::Tensor> tensors = brought(team.place().index, step);
  team.sum(tensors);
  for (size_t i = 0; i < tensors.size(); ++i) {
    at::Tensor truth = brought(0, step)[i];
    for (int index = 1; index < kProcesses; ++index) truth = truth + brought(index, step)[i];
    if (!at::equal(tensors[i], truth)) return false;
  }
  return true;
}

int follow_to_the_end(int table, int index) {
  const std::unique_ptr<Team> team = Team::follow(table, index);
  if (team->start().checkpoint != "here" || team->start().micro_batch != 3) return 2;
  team->assemble(at::kCPU);
  for (int64_t step = team->start().step;; ++step) {
    const std::optional<double> lr = team->wait_for_step(step);
    if (!lr) return step == team->start().step + kSteps ? 0 : 3;
    if (*lr != 1.0 / static_cast<double>(step) || !sums_are_right(*team, step)) return 4;
  }
}

Follower forked(const std::function<int()>& work) {
  const pid_t child = fork();
  if (child == 0) _exit(work());
  return {child, "nowhere.log"};
}

TEST(Team, SumsAreThoseOfOneProcessInEveryOne) {
  const TeamStart start{.step = 5, .micro_batch = 3, .numbers = 25, .compute_threads = 1, .checkpoint = "here"};
  const std::unique_ptr<Team> team = Team::lead(kProcesses, start, [](Place place, int table) {
    return forked([=] { return follow_to_the_end(table, place.index); });
  });
  team->assemble(at::kCPU);
  for (int64_t step = start.step; step < start.step + kSteps; ++step) {
    team->allow_step(step, 1.0 / static_cast<double>(step));
    ASSERT_TRUE(sums_are_right(*team, step)) << step;
  }
  EXPECT_NO_THROW(team->check());
}

TEST(Team, AProcessThatEndsIsNamed) {
  const std::unique_ptr<Team> team =
      Team::lead(2, {.numbers = 25}, [](Place, int) { return forked([] { return 7; }); });
  try {
    team->assemble(at::kCPU);
    FAIL() << "it waits for nobody";
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kMachine);
    EXPECT_THAT(error.what(), HasSubstr("worker 1 of the training ended with exit status 7"));
  }
}

TEST(Team, AStepHasTheSamplesOfAllAndEachItsShareOfTheMachine) {
  Options options;
  options.data.batch_size = 2;
  options.training.accumulate = 3;
  options.data.cache_gb = 8;
  options.system.num_cpus = 16;
  EXPECT_EQ(samples_of_step(options), 6);
  EXPECT_EQ(share_of(options).data.cache_gb, 8);
  options.system.num_gpus = 4;
  EXPECT_EQ(samples_of_step(options), 24);
  EXPECT_EQ(share_of(options).data.cache_gb, 2);
  EXPECT_EQ(share_of(options).system.num_cpus, 4);
}

}  // namespace
}  // namespace vox
