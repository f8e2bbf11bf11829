#include "train/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace vox {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kGib = int64_t{1} << 30;
const PlacementFacts kRoomy{.on_gpu = true,
                            .why_on_host = "",
                            .in_memory = true,
                            .volume_bytes = 50 * kGib,
                            .free_bytes = 120 * kGib,
                            .kept_bytes = 20 * kGib};

TEST(Placement, AutoTakesTheFastestTierThatFits) {
  EXPECT_EQ(decide_placement("auto", kRoomy).tier, "gpu");
  EXPECT_EQ(decide_placement("auto", kRoomy).gather_on, GatherOn::kDevice);
  PlacementFacts crowded = kRoomy;
  crowded.kept_bytes = 71 * kGib;
  const Placement host = decide_placement("auto", crowded);
  EXPECT_EQ(host.tier, "host");
  EXPECT_EQ(host.gather_on, GatherOn::kDeviceFromBoxes);
  EXPECT_THAT(host.said, HasSubstr("do not fit on the GPU (50.0 GiB of training volumes, 120.0 GiB free"));
  crowded.in_memory = false;
  EXPECT_EQ(decide_placement("auto", crowded).tier, "disk");
}

TEST(Placement, WhatIsAskedForIsDoneOrRefused) {
  EXPECT_EQ(decide_placement("host", kRoomy).tier, "host");
  EXPECT_EQ(decide_placement("disk", kRoomy).tier, "disk");
  EXPECT_THAT(decide_placement("disk", kRoomy).said, HasSubstr("as asked for"));
  PlacementFacts crowded = kRoomy;
  crowded.free_bytes = 60 * kGib;
  EXPECT_THROW(decide_placement("gpu", crowded), Error);
}

TEST(Placement, TheHostMakesWhatTheGpuCannot) {
  PlacementFacts facts = kRoomy;
  facts.why_on_host = "augmentation.vignette runs on the CPU alone";
  EXPECT_EQ(decide_placement("gpu", facts).gather_on, GatherOn::kHost);
  EXPECT_THAT(decide_placement("auto", facts).said, HasSubstr("augmentation.vignette"));
  facts.on_gpu = false;
  EXPECT_EQ(decide_placement("auto", facts).said, "");
  EXPECT_THAT(decide_placement("gpu", facts).said, HasSubstr("trains on the CPU"));
}

}  // namespace
}  // namespace vox
