// Losses on skeletons, distances and topology, and those that no kernel is made for: on the GPU the same values and
// gradients as on the CPU in float64, with ignored voxels and without.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "base/cuda_test_effort.h"
#include "base/drawn_seed.h"
#include "losses/loss.h"

namespace vox {
namespace {

using at::Tensor;

struct Problem {
  LossOptions loss;
  DataOptions data;
  int64_t channels = 1;
  Targets targets;
  Tensor logits;

  std::pair<Tensor, Tensor> value_and_gradient(const at::Device& device, at::ScalarType type) const {
    Targets there;
    there.label = targets.label.to(device);
    if (targets.mask.defined()) there.mask = targets.mask.to(device);
    if (targets.image.defined())  // as a batch on the GPU has it
      there.image = targets.image.to(device, at::kBFloat16).contiguous(at::MemoryFormat::ChannelsLast3d);
    for (const auto& [name, extra] : targets.extra) there.extra[name] = extra.to(device);
    const Tensor input = logits.detach().to(device, type).set_requires_grad(true);
    const Tensor total = LossSet(loss, data, channels).compute({input}, there, 0).total;
    return {total.detach().to(at::kCPU, at::kDouble),
            torch::autograd::grad({total}, {input})[0].to(at::kCPU, at::kDouble)};
  }
};

Problem draw_problem(const std::string& name, int64_t channels, bool ignores) {
  const auto draw = [](int64_t low, int64_t high) { return at::randint(low, high + 1, {1}).item<int64_t>(); };
  Problem problem;
  problem.loss.terms.emplace_back().name = name;
  problem.loss.terms[0].params.kind = Tree::Kind::kMap;
  problem.channels = channels;
  const std::vector<int64_t> sizes{draw(1, 3), 1, draw(3, 12), draw(3, 14), draw(3, 20)};
  const Tensor smooth = at::avg_pool3d(at::rand(sizes), {3, 3, 3}, {1, 1, 1}, {1, 1, 1});
  problem.targets.label =
      ((smooth - 0.25) * 8 * static_cast<double>(channels)).clamp(0, std::max<int64_t>(1, channels - 1)).to(at::kByte);
  if (ignores) {
    problem.data.ignore_label = 9;
    problem.targets.label.masked_fill_(at::rand(sizes) < 0.2, 9);
  }
  problem.targets.extra["skeleton"] = problem.targets.label.remainder(9) * (at::rand(sizes) < 0.5);
  if (name == "smooth_l1" || name == "dvh") {  // of values
    problem.data.target = "regression";
    problem.data.mask = "mask";
    problem.targets.label = at::randn({sizes[0], channels, sizes[2], sizes[3], sizes[4]});
    problem.targets.mask = at::randint(0, 2, sizes, at::kByte);
  }
  if (name == "dvh" && ignores) {  // of structures that overlap
    problem.targets.image = at::randint(0, 2, {sizes[0], 4, sizes[2], sizes[3], sizes[4]}).to(at::kFloat);
    problem.loss.terms[0].params.members = {
        {"structures", list_tree({scalar_tree("1"), scalar_tree("2"), scalar_tree("3")})},
        {"tails", scalar_tree("0.5")}};
  }
  problem.logits = (1.5 * at::randn({sizes[0], channels, sizes[2], sizes[3], sizes[4]})).clamp(-4, 4);
  return problem;
}

class VolumeLossesCuda : public testing::TestWithParam<std::string> {};

TEST_P(VolumeLossesCuda, EqualTheCpuInFloat64) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  const uint64_t seed = drawn_seed();
  at::manual_seed(seed);
  for (int sample = 0; sample < cuda::cases(8); ++sample) {
    const Problem problem = draw_problem(GetParam(), sample % 2 == 0 ? 1 : 3, sample % 4 < 2);
    const auto [value, gradient] = problem.value_and_gradient(at::kCPU, at::kDouble);
    const auto [ours, our_gradient] = problem.value_and_gradient(at::Device(at::kCUDA, 0), at::kFloat);
    EXPECT_NEAR(ours.item<double>(), value.item<double>(), 1e-4 * std::max(1.0, std::abs(value.item<double>())))
        << "seed " << seed << " sample " << sample;
    // Where two probabilities are the same number in float32 and not in float64, another voxel has the gradient.
    const Tensor size = gradient.square().mean().sqrt();
    const Tensor apart = (our_gradient - gradient).abs() > 1e-3 * size + 1e-7;
    EXPECT_LE(apart.to(at::kDouble).mean().item<double>(), 0.01)
        << "seed " << seed << " sample " << sample << " size " << size.item<double>();
  }
}
INSTANTIATE_TEST_SUITE_P(All, VolumeLossesCuda,
                         testing::Values("cldice", "morph_skeleton", "erosion_consistency", "surface_distance",
                                         "boundary", "hausdorff_dt", "skeleton_recall", "topology", "focal",
                                         "smooth_l1", "dvh"),
                         [](const auto& one) { return one.param; });

// Logits that are far apart have probabilities of the same order wherever they are computed, and so the same pairs.
TEST(TopologyCuda, EqualsTheCpuInEveryFormAndDimension) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  const uint64_t seed = drawn_seed();
  at::manual_seed(seed);
  for (const std::string form : {"persistence", "betti_matching"})
    for (const std::string dimension : {"0", "1", "2"}) {
      Problem problem = draw_problem("topology", 1, form == "persistence");
      problem.loss.terms[0].params.members = {{"form", scalar_tree(form)},
                                              {"dimensions", list_tree({scalar_tree(dimension)})}};
      const int64_t count = problem.logits.numel();
      problem.logits =
          (at::randperm(count).to(at::kFloat) / static_cast<double>(count) * 4 - 2).view_as(problem.logits);
      const auto [value, gradient] = problem.value_and_gradient(at::kCPU, at::kFloat);
      const auto [ours, our_gradient] = problem.value_and_gradient(at::Device(at::kCUDA, 0), at::kFloat);
      EXPECT_TRUE(at::allclose(ours, value, 1e-5, 1e-7)) << form << " " << dimension << " seed " << seed;
      // A pair of nearly equal probabilities has their difference as its gradient: as exact as they are, not as it is.
      const double least = 1e-5 * gradient.abs().max().item<double>();
      EXPECT_TRUE(at::allclose(our_gradient, gradient, 1e-4, least)) << form << " " << dimension << " seed " << seed;
    }
}

}  // namespace
}  // namespace vox
