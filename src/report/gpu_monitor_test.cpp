#include "report/gpu_monitor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>

namespace vox {
namespace {

// A driver with four GPUs; the handle of GPU i points at element i.
int gpus[4];
bool power_works = true;
std::atomic<unsigned> degrees_now = 61;

NvmlApi fake_driver() {
  NvmlApi api;
  api.init = [] { return 0; };
  api.handle_by_index = [](unsigned index, void** handle) {
    if (index >= 4) return 2;
    *handle = &gpus[index];
    return 0;
  };
  api.handle_by_uuid = [](const char* uuid, void** handle) {
    if (std::strcmp(uuid, "GPU-abc") != 0) return 6;
    *handle = &gpus[3];
    return 0;
  };
  api.use = [](void* handle, NvmlApi::Use* use) {
    use->gpu = 10 * static_cast<unsigned>(static_cast<int*>(handle) - gpus) + 7;
    return 0;
  };
  api.temperature = [](void*, int sensor, unsigned* degrees) {
    *degrees = sensor == 0 ? degrees_now.load() : 0;
    return 0;
  };
  api.power = [](void*, unsigned* milliwatts) {
    *milliwatts = 345678;
    return power_works ? 0 : 3;
  };
  return api;
}

TEST(GpuMonitor, ReadsTheGpuThatCudaMeans) {
  EXPECT_DOUBLE_EQ(*GpuMonitor(fake_driver(), 2, "").read().use, 0.27);
  EXPECT_DOUBLE_EQ(*GpuMonitor(fake_driver(), 1, "3, 0").read().use, 0.07);
  EXPECT_DOUBLE_EQ(*GpuMonitor(fake_driver(), 0, "GPU-abc").read().use, 0.37);
  const GpuReading reading = GpuMonitor(fake_driver(), 0, "").read();
  EXPECT_DOUBLE_EQ(*reading.temperature_c, 61);
  EXPECT_NEAR(*reading.power_w, 345.678, 1e-9);
}

TEST(GpuMonitor, WhatTheDriverDoesNotTellIsAbsent) {
  power_works = false;
  const GpuReading reading = GpuMonitor(fake_driver(), 0, "").read();
  power_works = true;
  EXPECT_FALSE(reading.power_w);
  EXPECT_TRUE(reading.use);
  for (const GpuMonitor& monitor : {GpuMonitor(), GpuMonitor(std::nullopt, 0, ""), GpuMonitor(fake_driver(), 7, ""),
                                    GpuMonitor(fake_driver(), 1, "2"), GpuMonitor(fake_driver(), 0, "GPU-other")}) {
    EXPECT_FALSE(monitor.read().use);
  }
}

TEST(GpuMonitor, AWatchTellsWhatItReadLast) {
  const GpuWatch watch(GpuMonitor(fake_driver(), 2, ""), std::chrono::milliseconds(1));
  EXPECT_DOUBLE_EQ(*watch.last().use, 0.27);
  degrees_now = 75;
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  double seen = 0;
  while ((seen = *watch.last().temperature_c) != 75 && std::chrono::steady_clock::now() < patience)
    std::this_thread::yield();
  degrees_now = 61;
  EXPECT_DOUBLE_EQ(seen, 75);
}

TEST(GpuMonitor, AWatchEndsAtOnce) {
  const auto begin = std::chrono::steady_clock::now();
  { const GpuWatch watch(GpuMonitor(fake_driver(), 0, ""), std::chrono::hours(1)); }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

}  // namespace
}  // namespace vox
