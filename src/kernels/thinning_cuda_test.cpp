// Thinning on the GPU against its twin on the CPU, which is itself compared with scikit-image.
#include "kernels/thinning_cuda.h"

#include <cuda_runtime.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <iostream>

#include "base/drawn_seed.h"
#include "kernels/cuda_test_masks.h"
#include "kernels/thinning.h"

namespace vox::cuda {
namespace {

enum class Thinning { kSlices, kVolumes };

std::vector<uint8_t> thinned_on_cpu(Thinning how, const TestMasks& masks) {
  std::vector<uint8_t> out(masks.voxels.size());
  for (int64_t volume = 0; volume < masks.volumes; ++volume) {
    const int64_t first = volume * masks.extent.voxels();
    const auto thin = how == Thinning::kSlices ? thin_2d_cpu : thin_3d_cpu;
    thin(out.data() + first, masks.voxels.data() + first, masks.extent, nullptr);
  }
  return out;
}

struct OnGpu {
  Thinning how;
  at::Tensor out, workspace;

  OnGpu(Thinning thinning, const TestMasks& masks)
      : how(thinning),
        out(at::full({std::max<int64_t>(static_cast<int64_t>(masks.voxels.size()), 1)}, 77,
                     at::TensorOptions(at::kCUDA).dtype(at::kByte))),
        workspace(test_workspace(thinning == Thinning::kSlices ? thin_2d_workspace(masks.volumes, masks.extent)
                                                               : thin_3d_workspace(masks.volumes, masks.extent))) {}
  void enqueue(const at::Tensor& mask, const TestMasks& masks, Stream stream) {
    const auto thin = how == Thinning::kSlices ? thin_2d_cuda : thin_3d_cuda;
    thin(out.data_ptr<uint8_t>(), mask.data_ptr<uint8_t>(), masks.volumes, masks.extent, workspace_numbers(workspace),
         stream);
  }
  bool equals(const std::vector<uint8_t>& truth) const {
    const std::vector<std::byte> found = host_bytes(out);
    return std::memcmp(found.data(), truth.data(), truth.size()) == 0;
  }
};

class ThinningCuda : public testing::TestWithParam<Thinning> {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  }
};
INSTANTIATE_TEST_SUITE_P(Both, ThinningCuda, testing::Values(Thinning::kSlices, Thinning::kVolumes),
                         [](const auto& test) { return test.param == Thinning::kSlices ? "Slices" : "Volumes"; });

TEST_P(ThinningCuda, IsThatOfTheCpu) {
  const uint64_t seed = drawn_seed();
  std::cout << "seed " << seed << '\n';
  const int samples = cases(150);
  for (int sample = 0; sample < samples; ++sample) {
    const TestMasks masks = random_test_masks(seed, static_cast<uint64_t>(sample), sample % 10 == 0 ? 90 : 30);
    OnGpu ours(GetParam(), masks);
    ours.enqueue(on_gpu(masks), masks, nullptr);
    ASSERT_TRUE(ours.equals(thinned_on_cpu(GetParam(), masks)))
        << masks.volumes << " of " << masks.extent << ", seed " << seed << " sample " << sample;
  }
}

TEST_P(ThinningCuda, WorksInPlace) {
  const TestMasks masks = random_test_masks(drawn_seed(), 0, 40);
  OnGpu ours(GetParam(), masks);
  ours.out = on_gpu(masks);
  ours.enqueue(ours.out, masks, nullptr);
  EXPECT_TRUE(ours.equals(thinned_on_cpu(GetParam(), masks))) << masks.extent;
}

// Slices that shared memory does not hold, more words than threads.
TEST_P(ThinningCuda, ThinsLargeSlices) {
  if (small_tests()) GTEST_SKIP() << "too large for slow tools";
  TestMasks masks{1, {3, 650, 1203}, {}};
  Random random(drawn_seed(), 1, 0);
  const std::array<double, 4> drawn{0.3, 0.11, 0.07, 0.5};
  for (int64_t i = 0; i < masks.extent.voxels(); ++i)
    masks.voxels.push_back(in_test_mask({i / (650 * 1203), i / 1203 % 650, i % 1203}, masks.extent, 7, drawn, random));
  OnGpu ours(GetParam(), masks);
  ours.enqueue(on_gpu(masks), masks, nullptr);
  EXPECT_TRUE(ours.equals(thinned_on_cpu(GetParam(), masks)));
}

TEST_P(ThinningCuda, GivesTheSameEveryTime) {
  const TestMasks masks = small_tests() ? random_test_masks(1, 1, 9) : two_volumes_of_sheets();
  const std::vector<uint8_t> truth = thinned_on_cpu(GetParam(), masks);
  const at::Tensor mask = on_gpu(masks);
  OnGpu ours(GetParam(), masks);
  for (int launch = 0; launch < std::min(launches(), 30); ++launch) {
    ours.out.fill_(77);
    ours.workspace.fill_(launch * 1234567);
    ours.enqueue(mask, masks, nullptr);
    ASSERT_TRUE(ours.equals(truth)) << launch;
  }
}

TEST_P(ThinningCuda, CanBeCaptured) {
  const TestMasks masks = random_test_masks(drawn_seed(), 2, 40);
  const at::Tensor mask = on_gpu(masks);
  OnGpu ours(GetParam(), masks);
  torch::cuda::synchronize();
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  ours.enqueue(mask, masks, stream);
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  for (int replay = 0; replay < 3; ++replay) {
    ASSERT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_TRUE(ours.equals(thinned_on_cpu(GetParam(), masks))) << masks.extent << " replay " << replay;
    ours.out.fill_(77);
    torch::cuda::synchronize();
  }
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

TEST_P(ThinningCuda, TimeOfTwoVolumes) {
  if (small_tests()) GTEST_SKIP() << "no times under slow tools";
  const TestMasks masks = two_volumes_of_sheets();
  const at::Tensor mask = on_gpu(masks);
  OnGpu ours(GetParam(), masks);
  const double gpu = milliseconds_of(30, [&] { ours.enqueue(mask, masks, nullptr); });
  const double cpu = milliseconds_on_cpu([&] { thinned_on_cpu(GetParam(), masks); });
  std::cout << (GetParam() == Thinning::kSlices ? "thinning 2-D" : "thinning 3-D") << " 2x128^3 sheets: GPU " << gpu
            << " ms, one CPU thread " << cpu << " ms, workspace " << static_cast<double>(ours.workspace.nbytes()) / 1e6
            << " MB\n";
  EXPECT_LT(gpu, cpu);
}

}  // namespace
}  // namespace vox::cuda
