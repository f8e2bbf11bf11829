// What a GPU stands still is what the host waits beyond the GPU's work.
#include "train/data_clock.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chrono>
#include <thread>

namespace vox {
namespace {

class DataClockCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
    factor_ = at::randn({4096, 4096}, at::TensorOptions(device_).dtype(at::kFloat));
    work(2);
    torch::cuda::synchronize();
  }

  void work(int products) {
    for (int i = 0; i < products; ++i) product_ = at::matmul(factor_, factor_);
  }

  double seconds_of(int products) {
    const auto begin = Clock::now();
    work(products);
    torch::cuda::synchronize();
    return seconds_since(begin);
  }

  double standing_still(int products, double host_waits_s) {
    DataClock clock(device_);
    work(products);
    clock.begin();
    std::this_thread::sleep_for(std::chrono::duration<double>(host_waits_s));
    const double seconds = clock.end();
    torch::cuda::synchronize();
    return seconds;
  }

  at::Device device_{at::kCUDA, 0};
  at::Tensor factor_, product_;
};

TEST_F(DataClockCuda, AGpuThatComputesDoesNotStandStill) {
  const double work_s = seconds_of(60);
  EXPECT_EQ(standing_still(60, work_s / 4), 0);
}

TEST_F(DataClockCuda, AGpuWithoutWorkStandsStillAsLongAsTheHostWaits) {
  EXPECT_NEAR(standing_still(0, 0.05), 0.05, 0.01);
}

TEST_F(DataClockCuda, OfALongerWaitOnlyWhatComesAfterTheWorkCounts) {
  const double work_s = seconds_of(60), beyond_s = 0.05;
  EXPECT_NEAR(standing_still(60, work_s + beyond_s), beyond_s, 0.01 + 0.25 * work_s);
}

}  // namespace
}  // namespace vox
