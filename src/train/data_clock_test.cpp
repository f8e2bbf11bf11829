#include "train/data_clock.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace vox {
namespace {

TEST(DataClock, OnACpuTheStepStandsStillAsLongAsItWaits) {
  DataClock clock(c10::Device(c10::DeviceType::CPU));
  for (const int wait_ms : {20, 0, 5}) {
    const auto before = Clock::now();
    clock.begin();
    std::this_thread::sleep_for(std::chrono::milliseconds(wait_ms));
    const double seconds = clock.end();
    EXPECT_GE(seconds, 1e-3 * wait_ms);
    EXPECT_LE(seconds, seconds_since(before));
  }
}

}  // namespace
}  // namespace vox
