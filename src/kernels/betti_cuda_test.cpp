// Cells and Betti numbers on the GPU against their twins on the CPU, which are themselves tested by closed forms.
#include "kernels/betti_cuda.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <iostream>

#include "base/drawn_seed.h"
#include "kernels/betti.h"
#include "kernels/cuda_test_masks.h"

namespace vox::cuda {
namespace {

struct Topology {  // [volumes, 4] and [volumes, 3]
  std::vector<int64_t> cells, numbers;
  bool operator==(const Topology&) const = default;
};

Topology topology_on_cpu(const TestMasks& masks) {
  Topology found;
  for (int64_t volume = 0; volume < masks.volumes; ++volume) {
    const uint8_t* mask = masks.voxels.data() + volume * masks.extent.voxels();
    const CellCounts cells = count_cells_cpu(mask, masks.extent);
    for (const int64_t count : {cells.vertices, cells.edges, cells.squares, cells.cubes}) found.cells.push_back(count);
    for (const int64_t number : betti_numbers_cpu(mask, masks.extent)) found.numbers.push_back(number);
  }
  return found;
}

std::vector<int64_t> numbers_on_host(const at::Tensor& tensor) {
  const at::Tensor host = tensor.cpu();
  return {host.data_ptr<int64_t>(), host.data_ptr<int64_t>() + host.numel()};
}

Topology topology_on_gpu(const at::Tensor& mask, const TestMasks& masks) {
  const at::TensorOptions options = at::TensorOptions(at::kCUDA).dtype(at::kLong);
  const at::Tensor cells = at::full({masks.volumes * 4}, -7, options),
                   numbers = at::full({masks.volumes * 3}, -7, options);
  const at::Tensor workspace = test_workspace(betti_workspace(masks.volumes, masks.extent));
  count_cells_cuda(cells.data_ptr<int64_t>(), mask.data_ptr<uint8_t>(), masks.volumes, masks.extent, nullptr);
  betti_numbers_cuda(numbers.data_ptr<int64_t>(), mask.data_ptr<uint8_t>(), masks.volumes, masks.extent,
                     workspace_numbers(workspace), nullptr);
  return {numbers_on_host(cells), numbers_on_host(numbers)};
}

class BettiCuda : public testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  }
};

TEST_F(BettiCuda, NumbersAreThoseOfTheCpu) {
  const uint64_t seed = drawn_seed();
  std::cout << "seed " << seed << '\n';
  const int samples = cases(150);
  for (int sample = 0; sample < samples; ++sample) {
    const TestMasks masks = random_test_masks(seed, static_cast<uint64_t>(sample), sample % 10 == 0 ? 90 : 30);
    ASSERT_EQ(topology_on_gpu(on_gpu(masks), masks), topology_on_cpu(masks))
        << masks.volumes << " of " << masks.extent << ", seed " << seed << " sample " << sample;
  }
}

// A box of 9 with a channel through it and a hole of its own, and a single voxel.
TEST_F(BettiCuda, AreThoseThatOneSees) {
  TestMasks masks{1, {9, 9, 9}, std::vector<uint8_t>(9 * 9 * 9, 0)};
  for (int64_t z = 1; z < 8; ++z)
    for (int64_t y = 1; y < 8; ++y)
      for (int64_t x = 1; x < 6; ++x)
        masks.voxels[static_cast<size_t>((z * 9 + y) * 9 + x)] = !(y == 2 && x == 2) && !(z == 4 && y == 5 && x == 3);
  masks.voxels[static_cast<size_t>((4 * 9 + 4) * 9 + 8)] = 1;
  EXPECT_EQ(topology_on_gpu(on_gpu(masks), masks).numbers, (std::vector<int64_t>{2, 1, 1}));
}

TEST_F(BettiCuda, GivesTheSameEveryTime) {
  const TestMasks masks = small_tests() ? random_test_masks(1, 1, 9) : two_volumes_of_sheets();
  const Topology truth = topology_on_cpu(masks);
  const at::Tensor mask = on_gpu(masks);
  for (int launch = 0; launch < std::min(launches(), 30); ++launch) ASSERT_EQ(topology_on_gpu(mask, masks), truth);
}

TEST_F(BettiCuda, TimeOfTwoVolumes) {
  if (small_tests()) GTEST_SKIP() << "no times under slow tools";
  const TestMasks masks = two_volumes_of_sheets();
  const at::Tensor mask = on_gpu(masks), out = test_workspace(8),
                   workspace = test_workspace(betti_workspace(masks.volumes, masks.extent));
  auto* const numbers = out.data_ptr<int64_t>();
  const auto row = [&](const char* what, const std::function<void()>& enqueue, const std::function<void()>& on_cpu) {
    const double gpu = milliseconds_of(100, enqueue), cpu = milliseconds_on_cpu(on_cpu);
    std::cout << what << " 2x128^3 sheets: GPU " << gpu << " ms, one CPU thread " << cpu << " ms\n";
    EXPECT_LT(gpu, cpu);
  };
  const int64_t voxels = masks.extent.voxels();
  const auto each = [&](const auto& work) {
    for (int64_t i = 0; i < masks.volumes; ++i) work(masks.voxels.data() + i * voxels);
  };
  row(
      "cells", [&] { count_cells_cuda(numbers, mask.data_ptr<uint8_t>(), 2, masks.extent, nullptr); },
      [&] { each([&](const uint8_t* of) { count_cells_cpu(of, masks.extent); }); });
  row(
      "Betti numbers",
      [&] {
        betti_numbers_cuda(numbers, mask.data_ptr<uint8_t>(), 2, masks.extent, workspace_numbers(workspace), nullptr);
      },
      [&] { each([&](const uint8_t* of) { betti_numbers_cpu(of, masks.extent); }); });
}

}  // namespace
}  // namespace vox::cuda
