// What kind of dataset a folder is, found by the names in it: nnU-Net, a MONAI (Decathlon) datalist, the Vesuvius
// surface challenge, OpenKBP, folders of images and labels, or pairs of files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "config/options.h"
#include "volume/dataset.h"

namespace vox {

enum class LayoutKind { kNnunet, kDatalist, kVesuvius, kOpenKbp, kFolders, kPairs };

struct Layout {
  LayoutKind kind = LayoutKind::kFolders;
  std::string title;  // "nnU-Net (imagesTr, labelsTr, dataset.json)"
  DataOptions data;   // root absolute; how cases are found and split, nothing more
  std::vector<Case> cases;
  std::vector<std::string> channel_names;      // as the folder says; empty where it does not
  std::map<int64_t, std::string> label_names;  // likewise
  std::set<int64_t> label_values;              // all that a label may hold, as the folder says; empty: anything
  std::string description;                     // the file that says so
  std::vector<std::string> remarks;            // sentences for the head of the recipe
};

// Error names what is missing: the folder, its layout, the partner of a file.
Layout find_layout(const std::filesystem::path& folder);

}  // namespace vox
