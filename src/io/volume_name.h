// How a volume is named: `path`, or `path:dataset` in formats that hold several.
#pragma once

#include <optional>
#include <string>

namespace vox {

struct VolumeName {
  std::string path, dataset;
};
// Of a volume that is there: the longest leading part that exists is the path, what follows its colon the dataset.
// Nullopt where there is none.
std::optional<VolumeName> existing_volume(const std::string& name);
// Of a volume to be written: by the suffix of the path, which need not exist. Error where the dataset has no name, or
// one that leads out of the file.
VolumeName name_to_write(const std::string& name);

}  // namespace vox
