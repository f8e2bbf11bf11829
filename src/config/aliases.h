// Names that other trainers use: each becomes Voxloom's option, or is accepted without effect, and says so.
#pragma once

#include <string>

#include "config/config.h"
#include "config/tree.h"

namespace vox {

struct Translation {
  KeyUse use = KeyUse::kUsed;
  std::string key;   // Voxloom's option; empty for a key without effect
  Tree value;        // in Voxloom's words
  std::string note;  // what the user is told; empty for a key used as it is
};
Translation translate(const std::string& key, const Tree& value);

}  // namespace vox
