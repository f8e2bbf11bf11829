// How a volume is named: `path`, or `path:dataset` in formats that hold several.
#pragma once

#include <string>

namespace vox {

struct VolumeName {
  std::string path, dataset;
};
// Of a volume to be written: by the suffix of the path, which need not exist. Error where the dataset has no name, or
// one that leads out of the file.
VolumeName name_to_write(const std::string& name);

}  // namespace vox
