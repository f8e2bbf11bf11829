// data.synth: what a recipe says to make where it is absent.
#pragma once

#include "config/options.h"

namespace vox::cli {

void make_missing_data(const Options& options);

}  // namespace vox::cli
