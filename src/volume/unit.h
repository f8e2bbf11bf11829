// One channel of one file of a case: what the store keeps, fetches and re-stores as one thing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/volume.h"
#include "config/options.h"
#include "io/orientation.h"
#include "volume/dataset.h"
#include "volume/preprocess.h"
#include "volume/store.h"

namespace vox {

struct Unit {
  std::string case_id, name;  // name as open_volume takes it
  int64_t channel = 0;        // in the file
  int64_t image_channel = 0;  // of the case, over all its images
  Role role = Role::kImage;
  VolumeInfo raw;          // as the file has it, one channel
  Reorientation turn;      // to the axes that data.orientation asks for
  VolumeInfo stored;       // after reorientation and preprocessing; the type is the widest it may become
  int64_t peak_bytes = 0;  // while it is made from the file, all at once
  uint64_t key = 0;        // of its content: file, size, time, channel, and what is done to it
  bool changed = false;    // reoriented or preprocessed
  bool direct = false;     // boxes are read cheaply from the file itself
  bool in_slabs = false;   // can be read slice by slice at no extra cost

  std::string title() const;  // "case s12: the label /data/labels/s12.tif"
};

struct CaseUnits {
  std::vector<Unit> images;  // one per channel
  std::optional<Unit> label, mask;
  std::string orientation;  // axis codes of the first image; empty where the file does not say
};

// Reads headers only. Error where a file cannot be opened, extents differ, or files of the case point different ways.
// One that does not say which way it points is turned as the first image is.
CaseUnits open_case(const Case& item, const DataOptions& data, const Preprocess& preprocess);

const char* name_of(Role role);

}  // namespace vox
