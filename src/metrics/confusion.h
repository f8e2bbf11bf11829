// Overlap of two label volumes: counts per class, and the scores that follow from them. Counts of parts add up, so a
// volume is counted slab by slab and a validation set patch by patch.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/dtype.h"

namespace vox {

struct ClassCounts {
  int64_t tp = 0, fp = 0, fn = 0;  // voxels: in both, in the prediction alone, in the reference alone
  // Where neither has the class the score is 1; a ratio 0/0 with only one of them empty is 0.
  double dice() const;
  double iou() const;
  double precision() const;
  double recall() const;
  bool operator==(const ClassCounts&) const = default;
};

struct ConfusionCounts {
  std::map<int64_t, ClassCounts> classes;  // foreground labels that occur; 0 is the background

  void merge(const ConfusionCounts& other);
  ClassCounts of(int64_t label) const;  // zeros where the label does not occur
  // Mean over the classes that occur in either volume (for a binary mask: of the foreground). 1 where there is none.
  double dice() const;
  double iou() const;
  double precision() const;
  double recall() const;
};

// Adds `count` voxels. Labels are whole numbers 0..65535 of any stored type; a voxel whose reference is the ignore
// label counts nowhere. Error names the value that is no label; `where` names the volumes in it.
struct LabelVoxels {
  const void* data = nullptr;
  DType dtype = DType::kUInt8;
  double scale = 1, offset = 0;
  std::string where;
};
void count_confusion(ConfusionCounts& counts, const LabelVoxels& prediction, const LabelVoxels& reference,
                     int64_t count, std::optional<int64_t> ignore_label = std::nullopt);

}  // namespace vox
