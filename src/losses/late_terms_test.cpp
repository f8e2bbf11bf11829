// Terms with a delay against the closed form: the pairs of one map, the values of another.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "base/error.h"
#include "losses/loss.h"
#include "losses/loss_test_terms.h"

namespace vox {
namespace {

struct Line {  // a map of seven voxels in a row, and a label of one piece
  LossOptions loss;
  Targets targets;
  at::Tensor first = at::tensor({0.2, 0.9, 0.15, 0.6, 0.05, 0.3, 0.25}).view({1, 1, 1, 1, 7});
  at::Tensor second = at::tensor({0.7, 0.55, 0.8, 0.35, 0.65, 0.1, 0.45}).view({1, 1, 1, 1, 7});

  Line(int64_t every, int64_t delay) {
    LossTerm term;
    term.name = "topology";
    term.weight = 0.5;
    term.every = every;
    term.start_step = 10;
    term.params.kind = Tree::Kind::kMap;
    term.params.members = {{"delay", scalar(std::to_string(delay))}, {"dimensions", scalar("0")}};
    LossTerm other;
    other.name = "bce";
    loss.terms = {other, term};
    targets.label = at::zeros({1, 1, 1, 1, 7}, at::kByte);
    targets.label[0][0][0][0][1] = 1;
  }
};

// In `first`, voxel 1 holds the piece that should be; voxel 3 begins one that voxel 2 ends, 5 one that 4 ends.
double value_of(const at::Tensor& p, at::Tensor* gradient) {
  const auto at = [&](int i) { return p.flatten()[i].item<double>(); };
  *gradient = at::zeros({7}, at::kDouble);
  (*gradient)[1] = 2 * (at(1) - 1);
  double value = (at(1) - 1) * (at(1) - 1);
  for (const auto& [birth, death] : {std::pair(3, 2), std::pair(5, 4)}) {
    const double apart = at(birth) - at(death);
    value += apart * apart;
    (*gradient)[birth] = 2 * apart;
    (*gradient)[death] = -2 * apart;
  }
  return value;
}

TEST(LateTerms, HavePairsOfTheFirstPredictionAndValuesOfTheSecond) {
  const Line line(4, 3);
  const LossSet set(line.loss, {}, 1);
  std::vector<LateTerm> late = set.begin({at::logit(line.first)}, line.targets, 14);
  ASSERT_EQ(late.size(), 1u);
  std::vector<LateTerm> restored;
  restored.push_back(set.restored(late[0].term, late[0].head, late[0].findings->state()));
  at::Tensor of_p;
  const double expected = value_of(line.second.to(at::kDouble), &of_p);
  for (std::vector<LateTerm>* terms : {&late, &restored}) {
    const at::Tensor logits = at::logit(line.second.to(at::kDouble)).requires_grad_();
    const LossResult result = set.apply(*terms, {logits}, line.targets, 17);
    EXPECT_TRUE(terms->empty());
    ASSERT_TRUE(result.terms[1].second.has_value());
    EXPECT_FALSE(result.terms[0].second.has_value());
    EXPECT_NEAR(result.terms[1].second->item<double>(), expected, 1e-6);
    EXPECT_NEAR(result.total.item<double>(), 0.5 * 4 * expected, 1e-6);
    result.total.backward();
    const at::Tensor p = line.second.to(at::kDouble).flatten();
    const at::Tensor wanted = 0.5 * 4 * of_p * p * (1 - p);
    EXPECT_LT((logits.grad().flatten() - wanted).abs().max().item<double>(), 1e-6);
  }
}

TEST(LateTerms, BeginWhereOthersAreDueAndAreDueLater) {
  const Line line(4, 3);
  const LossSet set(line.loss, {}, 1);
  for (int64_t step = 0; step < 30; ++step) {
    EXPECT_EQ(set.begins(step), step >= 10 && step % 4 == 2) << step;
    EXPECT_EQ(set.due(1, step, LossSet::Part::kLate), step >= 13 && step % 4 == 1) << step;
    EXPECT_FALSE(set.due(1, step)) << step;
    EXPECT_TRUE(set.due(0, step)) << step;
    // Between a beginning and its end, the end included, the batch of the beginning is needed.
    const bool unfinished = step >= 11 && step % 4 != 2;
    EXPECT_EQ(set.first_unfinished(step), unfinished ? (step - 3) / 4 * 4 + 2 : step) << step;
  }
  const auto terms = set.compute({at::logit(line.first)}, line.targets, 14).terms;
  EXPECT_TRUE(terms[0].second.has_value());
  EXPECT_FALSE(terms[1].second.has_value());
  const auto at_once =
      set.compute({at::logit(line.first)}, line.targets, 14, LossSet::Delays::kDisregarded).terms[1].second;
  at::Tensor unused;
  ASSERT_TRUE(at_once.has_value());
  EXPECT_NEAR(at_once->item<double>(), value_of(line.first.to(at::kDouble), &unused), 1e-6);
}

TEST(LateTerms, WaitForLessThanUntilTheNextOnes) {
  EXPECT_NO_THROW(LossSet(Line(4, 3).loss, {}, 1));
  EXPECT_THROW(LossSet(Line(4, 4).loss, {}, 1), Error);
}

}  // namespace
}  // namespace vox
