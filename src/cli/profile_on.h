// `voxloom profile CONFIG --on GPU`: what would be measured on a GPU that is not here.
#pragma once

#include <string>

#include "config/options.h"

namespace vox::cli {

// `gpu` is one of known_gpus(), or all.
void print_prediction(const Options& options, const std::string& gpu, bool as_json);

}  // namespace vox::cli
