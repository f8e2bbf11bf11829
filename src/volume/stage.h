// data.stage_dir: the dataset's files copied once to a local or RAM disk.
#pragma once

#include <string>

#include "volume/dataset.h"
#include "volume/store.h"

namespace vox {

class ThreadPool;

// Copies what is not there with the same size and time, and makes the cases name the copies.
void stage_dataset(Dataset& dataset, const std::string& folder, ThreadPool& pool, const StoreProgress& progress);

}  // namespace vox
