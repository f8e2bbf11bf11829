// How the values of images are made alike, channel by channel: by what the dataset calls a channel (nnU-Net's names),
// or by its values where it says nothing.
#pragma once

#include <string>
#include <vector>

#include "plan/fingerprint.h"

namespace vox {

struct PlannedStep {
  std::string text, why;  // an entry of data.preprocess, as YAML; why it is there
};

// `names` of channels may be fewer than the channels, or none. `by_values`: what has no name is CT where its values
// are.
std::vector<PlannedStep> plan_normalisation(const Fingerprint& print, const std::vector<std::string>& names,
                                            bool by_values);

}  // namespace vox
