// What a comparison tells its children, and when it has measured enough.
#include "measure/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "config/device_name.h"
#include "measure/child.h"

namespace vox {
namespace {

using testing::ElementsAre;

TEST(DeviceWords, AreThoseThatTheParentWasGiven) {
  EXPECT_THAT(device_words(""), ElementsAre());
  EXPECT_THAT(device_words("cpu"), ElementsAre("--device", "cpu"));
  EXPECT_THAT(device_words("cuda:0"), ElementsAre("--device", "cuda:0"));
}

TEST(DeviceWords, NameTheOnlyGpuThatThereIsToSee) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";  // what a process sees, it sees for good
  const auto in_a_child = [] {
    setenv("CUDA_VISIBLE_DEVICES", "4,7", 1);
    see_only("cuda:1");
    std::exit(device_words("cuda:1") == std::vector<std::string>{"--device", "cuda"} ? 0 : 1);
  };
  EXPECT_EXIT(in_a_child(), testing::ExitedWithCode(0), "");
}

TEST(Compare, IsPlainWhereEveryRoundIsFarOnOneSide) {
  EXPECT_TRUE(plainly_decided({0.7, 0.8, 0.8}, 1));
  EXPECT_TRUE(plainly_decided({1.2, 1.3, 1.16}, 1));
  EXPECT_FALSE(plainly_decided({0.7, 0.8}, 1)) << "two rounds are too few";
  EXPECT_FALSE(plainly_decided({0.7, 0.8, 0.9}, 1));
  EXPECT_FALSE(plainly_decided({0.7, 0.8, 1.3}, 1));
}

}  // namespace
}  // namespace vox
