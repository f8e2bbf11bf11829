// How much memory a dataset takes once it is preprocessed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/fingerprint.h"

namespace vox {

// Of all volumes, as the store holds them; `steps` are the entries of data.preprocess, as YAML. Nothing is read.
int64_t kept_bytes(const Fingerprint& print, const std::vector<std::string>& steps);

}  // namespace vox
