// The cases of a dataset, from an explicit list, a table, or patterns alone; not yet split.
#pragma once

#include <vector>

#include "config/options.h"
#include "volume/dataset.h"

namespace vox {

// By id in natural order. Error where there is none, an id appears twice, or a partner is missing (with
// data.on_bad_case: skip a missing partner is left for the store to skip).
std::vector<Case> find_cases(const DataOptions& data);

}  // namespace vox
