// Which way the axes of a volume point in the world, and turning a volume to the RAS axes (x to the right, y to the
// front, z upwards) and back by flipping and swapping axes alone: no voxel value changes.
#pragma once

#include <string>

#include "base/volume.h"

namespace vox {

// Where voxel axes x, y, z point, as nibabel says it: "RAS", "LPI", ...
std::string axis_codes(const Affine& affine);

// Axis i (z, y, x) of the result is axis axes[i] of the source, backwards where flip[i].
struct Reorientation {
  int axes[3] = {0, 1, 2};
  bool flip[3] = {false, false, false};
  bool operator==(const Reorientation&) const = default;
};

Reorientation to_ras(const Affine& affine);
Reorientation inverse(const Reorientation& reorientation);

// Extent, chunk, spacing and affine follow, so that every voxel keeps its place in the world.
VolumeInfo apply(const VolumeInfo& info, const Reorientation& reorientation);
Volume apply(const Volume& volume, const Reorientation& reorientation);

}  // namespace vox
