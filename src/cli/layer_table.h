// The table of layers that `train --dry-run` prints below the recipe.
#pragma once

#include <string>

#include "config/options.h"

namespace vox::cli {

// Every line is a YAML comment. Channels that only the data could tell (0) are taken as one, and the table says so.
// Below the layers: the memory of a step, and what a run needs beside it. Error where no network can be
// made of the options.
std::string layer_table_text(const Options& options, int64_t image_channels, int64_t training_bytes);

}  // namespace vox::cli
