// NCCL as it is looked up in the running program. With one process a sum changes nothing; that several agree is for a
// machine with as many GPUs.
#include "train/team_sum.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "train/team.h"

namespace vox {
namespace {

TEST(TeamSumCuda, OfOneProcessChangesNothing) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  const TeamKey key = new_team_key();
  ASSERT_NE(key, TeamKey{}) << "torch brings NCCL";
  const std::unique_ptr<TeamSum> sum = make_team_sum(key, {0, 1}, at::Device(at::kCUDA, 0));
  ASSERT_NE(sum, nullptr);
  const std::vector<at::Tensor> tensors{at::randn({1 << 20}, at::kCUDA), at::randn({3, 5}, at::kCUDA)};
  const std::vector<at::Tensor> before{tensors[0].clone(), tensors[1].clone()};
  for (int round = 0; round < 3; ++round) sum->add_up(tensors);
  for (size_t i = 0; i < tensors.size(); ++i) EXPECT_TRUE(at::equal(tensors[i], before[i]));
  sum->abort();
  EXPECT_NO_THROW(sum->add_up(tensors));  // nobody is there any more
}

TEST(TeamSumCuda, ATeamOfOneTakesSteps) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  const std::unique_ptr<Team> team =
      Team::lead(1, {.numbers = 8, .on_gpus = true}, [](Place, int) { return Follower{}; });
  team->assemble(at::Device(at::kCUDA, 0));
  const at::Tensor values = at::arange(8, at::TensorOptions(at::kFloat).device(at::kCUDA));
  for (int64_t step = 0; step < 3; ++step) {
    team->allow_step(step, 0.1);
    team->sum({values});
  }
  EXPECT_TRUE(at::equal(values.cpu(), at::arange(8, at::kFloat)));
}

}  // namespace
}  // namespace vox
