// data.synth: what a recipe says to make where it is absent.
#pragma once

#include "config/options.h"

namespace vox::cli {

void make_missing_data(const Options& options);
void check_missing_data(const Options& options);  // what making it would refuse

}  // namespace vox::cli
