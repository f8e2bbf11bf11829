// Keys of a recipe that change nothing: names that mean nothing here, and options that another option switches off.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"

namespace vox {

struct KeyWithoutEffect {
  std::string key;  // as the user wrote it
  std::string reason;
};
std::vector<KeyWithoutEffect> keys_without_effect(const Config& config);

}  // namespace vox
