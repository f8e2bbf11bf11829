// Kernels on volumes on the GPU against their twins on the CPU, which are themselves tested by brute force: random
// shapes that no tile divides, contents from empty to full, values with many ties.
#include "ops/volume_ops.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "base/cuda_test_effort.h"
#include "base/drawn_seed.h"
#include "kernels/cldice_cuda.h"
#include "kernels/components_cuda.h"
#include "kernels/edt_cuda.h"

namespace vox::ops {
namespace {

using at::Tensor;

class VolumeCuda : public testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
    seed_ = drawn_seed();
    at::manual_seed(seed_);
    RecordProperty("seed", std::to_string(seed_));
  }
  int64_t draw(int64_t low, int64_t high) { return at::randint(low, high + 1, {1}).item<int64_t>(); }
  std::vector<int64_t> shape(int64_t most = 40) {
    most = cuda::side(most);
    return {draw(1, 3), draw(1, 2), draw(1, most), draw(1, most),
            draw(1, 3) == 1 ? 4 * draw(1, most / 4) : draw(1, most)};
  }
  static Tensor smoothed(const Tensor& any, int64_t reach) {
    const int64_t width = 2 * reach + 1;
    const Tensor padded = at::constant_pad_nd(any, {reach, reach, reach, reach, reach, reach});
    return at::avg_pool3d(padded, {width, width, width}, {1, 1, 1});
  }
  // Values from 0 to 1: all different, a few levels with many ties, or only 0 and 1.
  Tensor values(at::IntArrayRef sizes) {
    const Tensor any = at::rand(sizes);
    switch (draw(0, 3)) {
      case 0:
        return any;
      case 1:
        return (any * 4).floor() / 4;
      case 2:
        return (smoothed(any, 1) > 0.3).to(at::kFloat);
      default:
        return at::sigmoid(12 * (smoothed(any, 2) - 0.3));
    }
  }
  Tensor mask(at::IntArrayRef sizes) {
    const double share = std::vector{0.0, 1.0, 0.02, 0.5, 0.98, 0.999}[static_cast<size_t>(draw(0, 5))];
    return at::rand(sizes) < share;
  }
  uint64_t seed_ = 0;
};

Tensor poisoned(at::IntArrayRef sizes) {
  return at::full(sizes, std::numeric_limits<float>::quiet_NaN(), at::TensorOptions(at::kCUDA).dtype(at::kFloat));
}

Extent3 extent_of(const Tensor& volumes) {
  return {volumes.size(2), volumes.size(3), volumes.size(4)};
}

const uint8_t* bytes_of(const Tensor& mask) {
  return reinterpret_cast<const uint8_t*>(mask.data_ptr<bool>());
}

// Largest difference; infinities must be at the same places.
double difference(const Tensor& ours, const Tensor& truth) {
  const Tensor a = ours.cpu().to(at::kDouble), b = truth.cpu().to(at::kDouble);
  if (a.numel() == 0) return 0;
  return at::where(a == b, at::zeros_like(a), ((a - b) / b.abs().clamp_min(1)).abs()).max().item<double>();
}

TEST_F(VolumeCuda, DistancesAreThoseOfTheCpu) {
  for (int sample = 0; sample < cuda::cases(40); ++sample) {
    std::vector<int64_t> sizes = shape(70);
    if (sample % 10 == 0) sizes = {1, 1, draw(1, 3), draw(700, 2500), draw(1, 40)};
    const Tensor inside = mask(sizes), on_gpu = inside.cuda();
    const Extent3 extent = extent_of(inside);
    EdtOptions options;
    if (draw(0, 1) == 1)
      options.spacing = {at::rand({1}).item<double>() + 0.2, 1.5, at::rand({1}).item<double>() * 3 + 0.2};
    if (draw(0, 1) == 1) options.limit_mm = 0.5 + 9 * at::rand({1}).item<double>();
    const int64_t volumes = sizes[0] * sizes[1];
    Tensor squares = at::empty(sizes), both = at::empty(sizes), our_squares = poisoned(sizes), ours = poisoned(sizes),
           our_both = poisoned(sizes);
    for (int64_t i = 0; i < volumes; ++i) {
      const int64_t first = i * extent.voxels();
      edt_squared_cpu(squares.data_ptr<float>() + first, bytes_of(inside) + first, extent, options);
      signed_distance_cpu(both.data_ptr<float>() + first, bytes_of(inside) + first, extent, options);
    }
    edt_squared_cuda(our_squares.data_ptr<float>(), bytes_of(on_gpu), volumes, extent, options, nullptr);
    edt_cuda(ours.data_ptr<float>(), bytes_of(on_gpu), volumes, extent, options, DistanceOf::kInside, nullptr);
    edt_cuda(our_both.data_ptr<float>(), bytes_of(on_gpu), volumes, extent, options, DistanceOf::kBoth, nullptr);
    ASSERT_LT(difference(our_squares, squares), 1e-6) << extent << " seed " << seed_ << " sample " << sample;
    ASSERT_LT(difference(ours, squares.sqrt()), 1e-6) << extent << " seed " << seed_ << " sample " << sample;
    ASSERT_LT(difference(our_both, both), 1e-6) << extent << " seed " << seed_ << " sample " << sample;
  }
}

TEST_F(VolumeCuda, ErosionAndItsGradientAreThoseOfTheCpu) {
  for (int sample = 0; sample < cuda::cases(40); ++sample) {
    const Tensor input = values(shape()), outer = at::randn_like(input);
    for (const SoftErosion erosion : {SoftErosion::kCross, SoftErosion::kCube}) {
      const Tensor a = input.clone().set_requires_grad(true), b = input.cuda().set_requires_grad(true);
      const Tensor truth = soft_erode(a, erosion), ours = soft_erode(b, erosion);
      truth.backward(outer);
      ours.backward(outer.cuda());
      ASSERT_TRUE(at::equal(ours.cpu(), truth)) << input.sizes() << " seed " << seed_ << " sample " << sample;
      ASSERT_LT(difference(b.grad(), a.grad()), 2e-6) << input.sizes() << " seed " << seed_ << " sample " << sample;
    }
  }
}

// In double on the CPU, so that what is seen is the rounding of the GPU alone.
TEST_F(VolumeCuda, SkeletonAndItsGradientAreThoseOfTheCpuInDouble) {
  for (int sample = 0; sample < cuda::cases(40); ++sample) {
    const Tensor input = values(shape()), outer = at::randn_like(input);
    for (const SoftErosion erosion : {SoftErosion::kCross, SoftErosion::kCube}) {
      const SoftSkeletonOptions options{static_cast<int>(draw(0, 7)), erosion};
      const Tensor a = input.to(at::kDouble).set_requires_grad(true), b = input.cuda().set_requires_grad(true);
      const Tensor truth = soft_skeleton(a, options), ours = soft_skeleton(b, options);
      truth.backward(outer.to(at::kDouble));
      ours.backward(outer.cuda());
      ASSERT_LT(difference(ours, truth), 1e-6) << input.sizes() << " seed " << seed_ << " sample " << sample;
      // Six bits of a gradient's 24 say where it goes: each is off by 4e-6 of itself, and up to 27 cancel in a sum.
      const double largest = a.grad().numel() > 0 ? a.grad().abs().max().item<double>() : 0;
      ASSERT_LT(difference(b.grad().cpu() / std::max(1.0, largest), a.grad() / std::max(1.0, largest)), 1e-5)
          << input.sizes() << " iterations " << options.iterations << " seed " << seed_ << " sample " << sample;
    }
  }
}

TEST_F(VolumeCuda, PersistencePlacesAreThoseOfTheCpu) {
  for (int sample = 0; sample < cuda::cases(12); ++sample) {
    const Tensor map = values(shape(24)), transposed = map.transpose(2, 4);
    const PersistenceOptions options{.level = sample % 2 == 0 ? Level::kRising : Level::kFalling};
    for (int dimension = 0; dimension < 3; ++dimension)
      for (const Tensor& input : {map, transposed, map.to(at::kBFloat16)}) {
        const PairPlaces truth = persistence_places(input, dimension, options);
        const PairPlaces ours = persistence_places(input.cuda(), dimension, options);
        ASSERT_TRUE(ours.birth == truth.birth && ours.death == truth.death && ours.volume == truth.volume)
            << input.sizes() << " dimension " << dimension << " seed " << seed_ << " sample " << sample;
      }
  }
}

// By its formula in float64 on the CPU.
Tensor cldice_by_formula(const Tensor& p, const Tensor& t, const Tensor& valid, const ClDiceOptions& options) {
  const auto skeleton = [&](const Tensor& of) {
    const Tensor all = soft_skeleton(of, options.skeleton);
    return valid.defined() ? all * valid : all;
  };
  const Tensor of_p = skeleton(p), of_t = skeleton(t);
  const auto ratio = [&](const Tensor& of, const Tensor& in) {
    return ((of * in).sum({2, 3, 4}) + options.smooth) / (of.sum({2, 3, 4}) + options.smooth);
  };
  const Tensor precision = ratio(of_p, t), recall = ratio(of_t, p);
  return 1 - 2 * precision * recall / (precision + recall);
}

TEST_F(VolumeCuda, ClDiceIsItsFormula) {
  for (int sample = 0; sample < cuda::cases(30); ++sample) {
    std::vector<int64_t> sizes = shape();
    const bool logits = draw(0, 1) == 1;
    if (logits) sizes[1] = 1;
    const ClDiceOptions options{
        .skeleton = {static_cast<int>(draw(1, 6)), draw(0, 1) == 1 ? SoftErosion::kCross : SoftErosion::kCube},
        .smooth = 1,
        .logits = logits,
        .mask = draw(0, 1) == 1};
    Tensor valid, t = values(sizes), input = logits ? 3 * at::randn(sizes) : values(sizes);
    if (options.mask) t = (t > 0.6).to(at::kFloat);
    if (draw(0, 1) == 1) {
      valid = (at::rand({sizes[0], 1, sizes[2], sizes[3], sizes[4]}) < 0.8).to(at::kFloat);
      t = t * valid;
      if (!logits) input = input * valid;
    }
    const Tensor weights = at::rand({sizes[0], sizes[1]});
    const Tensor a = input.to(at::kDouble).set_requires_grad(true), b = input.cuda().set_requires_grad(true);
    const Tensor counted = valid.defined() ? valid.to(at::kDouble) : valid;
    Tensor p = logits ? a.sigmoid() : a;
    if (logits && valid.defined()) p = p * counted;
    const Tensor truth = cldice_by_formula(p, t.to(at::kDouble), counted, options);
    const Tensor ours = fused_cldice(b, t.cuda(), valid.defined() ? valid.cuda() : valid, options);
    (truth * weights).sum().backward();
    (ours * weights.cuda()).sum().backward();
    ASSERT_LT(difference(ours, truth), 1e-5) << input.sizes() << " seed " << seed_ << " sample " << sample;
    const double norm = a.grad().norm().item<double>();
    ASSERT_LT((b.grad().cpu() - a.grad()).norm().item<double>(), 1e-4 * norm + 1e-7)
        << input.sizes() << " logits " << logits << " seed " << seed_ << " sample " << sample;
  }
}

TEST_F(VolumeCuda, ComponentsAreThoseOfTheCpu) {
  for (int sample = 0; sample < cuda::cases(40); ++sample) {
    const std::vector<int64_t> sizes = shape(60);
    const Tensor inside = mask(sizes), classes = (inside * at::randint(0, 4, sizes)).to(at::kInt);
    const int64_t volumes = sizes[0] * sizes[1], voxels = sizes[2] * sizes[3] * sizes[4];
    const Extent3 extent = extent_of(inside);
    const auto connectivity = std::vector{Connectivity::kFaces, Connectivity::kEdges,
                                          Connectivity::kCorners}[static_cast<size_t>(draw(0, 2))];
    const auto numbers = [](const Tensor& tensor) { return reinterpret_cast<uint32_t*>(tensor.data_ptr<int32_t>()); };
    const Tensor truth = at::empty(sizes, at::kInt), of_classes = at::empty(sizes, at::kInt);
    const Tensor counts = at::empty({2, volumes}, at::kInt);
    for (int64_t i = 0; i < volumes; ++i) {
      counts[0][i] = components_cpu(numbers(truth) + i * voxels, bytes_of(inside) + i * voxels, extent, connectivity);
      counts[1][i] =
          label_components_cpu(numbers(of_classes) + i * voxels, numbers(classes) + i * voxels, extent, connectivity);
    }
    const at::TensorOptions on_gpu = at::TensorOptions(at::kCUDA).dtype(at::kInt);
    const Tensor ours = at::full(sizes, -7, on_gpu), our_classes = at::full(sizes, -7, on_gpu),
                 our_counts = at::full({2, volumes}, -7, on_gpu), inputs = classes.cuda(), mask_there = inside.cuda(),
                 workspace = at::empty({components_workspace(volumes, extent)}, on_gpu);
    components_cuda(numbers(ours), numbers(our_counts), bytes_of(mask_there), volumes, extent, connectivity,
                    numbers(workspace), nullptr);
    label_components_cuda(numbers(our_classes), numbers(our_counts) + volumes, numbers(inputs), volumes, extent,
                          connectivity, numbers(workspace), nullptr);
    ASSERT_TRUE(at::equal(ours.cpu(), truth)) << extent << " seed " << seed_ << " sample " << sample;
    ASSERT_TRUE(at::equal(our_classes.cpu(), of_classes)) << extent << " seed " << seed_ << " sample " << sample;
    ASSERT_TRUE(at::equal(our_counts.cpu(), counts)) << extent << " seed " << seed_ << " sample " << sample;
  }
}

TEST_F(VolumeCuda, ClDiceGivesTheSameBitsEveryTime) {
  const Tensor input = at::randn({3, 1, 33, 70, 68}).cuda().set_requires_grad(true);
  const Tensor target = (at::rand({3, 1, 33, 70, 68}) < 0.3).to(at::kFloat).cuda();
  const ClDiceOptions options{.skeleton = {4, SoftErosion::kCross}, .smooth = 1, .logits = true, .mask = true};
  Tensor first_loss, first_grad;
  for (int launch = 0; launch < cuda::launches(); ++launch) {
    const Tensor loss = fused_cldice(input, target, Tensor(), options);
    const Tensor grad = torch::autograd::grad({loss.sum()}, {input})[0];
    if (launch == 0) {
      first_loss = loss.detach();
      first_grad = grad;
    }
    ASSERT_TRUE(at::equal(loss.detach(), first_loss) && at::equal(grad, first_grad)) << launch;
  }
}

}  // namespace
}  // namespace vox::ops
