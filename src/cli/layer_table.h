// The table of layers that `train --dry-run` prints below the recipe.
#pragma once

#include <string>

#include "config/options.h"

namespace vox::cli {

// Every line is a YAML comment. Channels that only the data could tell (0) are taken as one, and the table says so.
// Error where no network can be made of the options.
std::string layer_table_text(const Options& options, int64_t image_channels);

}  // namespace vox::cli
