#pragma once

#include "config/visitor.h"

namespace vox {

struct Switch {  // a transform that can be turned off and happens with a probability
  bool enabled = false;
  double prob = 0.5;

  void describe(Visitor& v) {
    v.field("enabled", enabled, {.meaning = "Use this transform"});
    v.field("prob", prob, {.meaning = "Share of patches it is applied to", .min = 0, .max = 1});
  }
  bool operator==(const Switch&) const = default;
};

struct ChannelSwitch : Switch {  // one whose parameters may differ between the channels of an image
  bool per_channel = false;
  double channel_prob = 1;

  void describe(Visitor& v) {
    Switch::describe(v);
    v.field("per_channel", per_channel, {.meaning = "Draw the parameters for each channel instead of once for all"});
    v.field("channel_prob", channel_prob,
            {.meaning = "Share of channels it is applied to, where it is applied at all", .min = 0, .max = 1});
  }
  bool operator==(const ChannelSwitch&) const = default;
};

struct SectionSwitch : Switch {  // a defect of single sections (slices along z) of the image
  int64_t sections = 1;

  void describe(Visitor& v) {
    Switch::describe(v);
    v.field("sections", sections,
            {.meaning = "Most sections of a patch it strikes; drawn from 1 to this", .min = 1, .max = 4096});
  }
  bool operator==(const SectionSwitch&) const = default;
};

}  // namespace vox
