#include "nets/untold.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nets/network.h"

namespace vox {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ModelOptions network(const std::vector<std::string>& options) {
  return model_options({{"in_channels", "1"}, {"out_channels", "2"}}, options);
}

std::string difference(const std::vector<std::string>& there, const std::vector<std::string>& here) {
  return other_function_note(describe(network(there)), network(here), "w");
}

TEST(Untold, OptionsOfTheSameFunctionAreNoDifference) {
  EXPECT_EQ(difference({"filters=[4, 8]"}, {"filters=[4, 8]"}), "");
  EXPECT_EQ(difference({"filters=[4, 8]", "activation=leaky_relu", "norm=instance", "strides=[[1, 1, 1], [2, 2, 2]]"},
                       {"filters=[4, 8]"}),
            "");
  EXPECT_EQ(difference({"architecture=monai_unet", "norm=batch", "norm_groups=4", "activation=prelu"},
                       {"architecture=monai_unet"}),
            "");
  EXPECT_EQ(other_function_note({}, network({}), "w"), "");
  EXPECT_EQ(difference({"activation=relu"}, {"architecture=dynunet"}), "");
}

TEST(Untold, OptionsThatLeaveNoTensorsAreCompared) {
  EXPECT_EQ(difference({"activation=relu"}, {}),
            "w: the tensors do not show it, but its network computes something else than this one: model.activation is "
            "relu there and auto here");
  EXPECT_THAT(difference({"architecture=monai_unet", "filters=[4, 8]", "strides=[[1, 2, 2]]"},
                         {"architecture=monai_unet", "filters=[4, 8]"}),
              HasSubstr("model.strides is [[1, 2, 2]] there"));
  EXPECT_THAT(difference({"norm=group", "norm_groups=2"}, {"norm=group", "norm_groups=4"}),
              HasSubstr("model.norm_groups is 2 there and 4 here"));
  EXPECT_THAT(difference({"norm=group"}, {}), HasSubstr("model.norm is group there and auto here"));
  EXPECT_THAT(difference({"upsample=nearest", "output_scale=70"}, {"upsample=trilinear"}),
              HasSubstr("model.upsample is nearest there and trilinear here; model.output_scale is 70 there"));
  Metadata checkpoint;
  for (const auto& [key, value] : describe(network({"activation=elu"}))) checkpoint["model." + key] = value;
  EXPECT_THAT(other_function_note(checkpoint, network({}), "w"), HasSubstr("model.activation is elu there"));
}

TEST(Untold, WhatAStateDictCannotCarryIsSaid) {
  EXPECT_THAT(lost_in_export(network({})), IsEmpty());
  EXPECT_THAT(lost_in_export(network({"output_scale=70", "added_channel=0"})),
              ElementsAre(HasSubstr("multiply the original's outputs by 70"), HasSubstr("add channel 0 of the image")));
  EXPECT_THAT(lost_in_export(network({"upsample=trilinear", "strides=[[2, 2, 2], [2, 2, 2]]"})),
              ElementsAre(HasSubstr("model.upsample"), HasSubstr("model.strides")));
  EXPECT_THAT(lost_in_export(network({"architecture=dynunet", "strides=[[1, 1, 1], [2, 2, 2]]"})), IsEmpty());
}

}  // namespace
}  // namespace vox
