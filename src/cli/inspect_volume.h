// What a volume file holds and what is wrong with it, found slab by slab: memory does not grow with the file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/volume.h"
#include "volume/statistics.h"

namespace vox {
class ThreadPool;
}

namespace vox::cli {

using LabelCounts = std::map<int64_t, int64_t>;  // value, voxels

struct VolumeFacts {
  VolumeInfo info;
  Moments values;                     // real ones: scale and offset applied
  std::optional<LabelCounts> labels;  // where all values are whole numbers and few
  std::vector<std::string> problems;
};

VolumeFacts inspect_volume(const std::string& name, ThreadPool& pool);

}  // namespace vox::cli
