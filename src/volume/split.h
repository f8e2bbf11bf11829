// Which case is for training, validation or test. Whole groups only: a patient or a scroll never leaks.
#pragma once

#include <cstdint>
#include <vector>

#include "config/options.h"
#include "volume/dataset.h"

namespace vox {

// Sets train, validation and test of `dataset` from its cases.
void split_cases(Dataset& dataset, const DataOptions& data, int64_t fold, uint64_t seed);

// The fold of each case, 0 .. folds-1: that which it says, below `folds`; of the others groups go, largest first and
// ties in an order drawn by seed and name, to the fold with the fewest cases. Depends on names and sizes of groups
// alone.
std::vector<int64_t> assign_folds(const std::vector<Case>& cases, int64_t folds, uint64_t seed);

}  // namespace vox
