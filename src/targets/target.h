// What losses compare a prediction with beside the label: made from the augmented label of each patch, on the threads
// of the pipeline. A new one is a file targets/<name>.cpp that defines <name>_target(), and a line in targets.list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"
#include "config/config.h"

namespace vox {

struct LabelPatch {
  const uint8_t* labels = nullptr;  // Z, Y, X
  Extent3 extent;
  Spacing3 spacing;
  int64_t ignore_label = -1;
  const uint8_t* mask = nullptr;  // 0 where a label says nothing; null: nowhere

  std::optional<uint8_t> seen(int64_t voxel) const {  // what the label says; ignored and masked voxels say nothing
    const bool counts = labels[voxel] != ignore_label && (mask == nullptr || mask[voxel] != 0);
    return counts ? std::optional(labels[voxel]) : std::nullopt;
  }
  uint8_t at(int64_t voxel) const {  // ignored voxels are background: losses leave them out themselves
    return labels[voxel] == ignore_label ? uint8_t{0} : labels[voxel];
  }
};

// What depends on labels that the patch does not show: losses leave it out. Which voxels these are follows from what is
// hidden alone, not from the labels beside it: values that are known more often than others would be taught there. (Not
// so for flows, whose directions may depend on what is hidden at any distance: flow.cpp.)
constexpr int8_t kUnknown = -1;                                           // of kInt8
constexpr float kUnknownValue = std::numeric_limits<float>::quiet_NaN();  // of kFloat32

class Target {
 public:
  virtual ~Target() = default;
  virtual int64_t channels() const { return 1; }
  virtual DType dtype() const { return DType::kUInt8; }
  virtual void make(const LabelPatch& patch, std::byte* out) const = 0;  // [channels, Z, Y, X]; a pure function
};

struct TargetEntry {
  std::string name, help;
  std::function<std::unique_ptr<Target>(const Tree& params)> make;
  std::vector<OptionRow> (*options)();  // of its own
};
const std::vector<TargetEntry>& all_targets();

std::unique_ptr<Target> make_target(const TargetOptions& options);  // Error names what there is

// The foreground of a patch as 0 and 1.
std::vector<uint8_t> foreground_of(const LabelPatch& patch);

}  // namespace vox
