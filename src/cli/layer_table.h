// The table of layers that `train --dry-run` prints below the recipe.
#pragma once

#include <string>

#include "config/options.h"

namespace vox::cli {

// Every line is a YAML comment. Channels that only the data could tell are taken as one, and the table says so. Where
// no network can be made of the options, a line says why: the recipe above it is still what was asked for.
std::string layer_table_text(const Options& options);

}  // namespace vox::cli
