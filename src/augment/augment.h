// Augmentation: parameters are drawn first, from (seed, sample, transform); the spatial ones compose into one map, the
// intensity ones run on the gathered patch. A transform is one file and one line in transforms.list; its place in the
// list is its random stream, so that new lines go to the end.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "config/options.h"
#include "kernels/gather.h"

namespace vox {

// Affine in voxels, about the patch centre: source offset from the centre = linear * output offset + shift.
struct SpatialMap {
  double linear[3][3] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}};
  double shift[3] = {0, 0, 0};
};
SpatialMap compose(const SpatialMap& first, const SpatialMap& then);  // what an output voxel sees: first, then `then`
// For a patch of `extent` whose untransformed first voxel is `begin`. Flips, quarter turns and whole shifts come out
// exact: where the centre lies between voxels on one axis and on a voxel on another, they turn about the nearest
// point that sends voxels to voxels, half a voxel below.
GatherMap to_gather_map(const SpatialMap& map, const Extent3& begin, const Extent3& extent);

struct PatchView {  // one channel of one gathered image, float32
  float* data;
  Extent3 extent;
  int64_t channel;
};
using IntensityOp = std::function<void(const PatchView&)>;

struct Drawn {  // what was drawn for one sample
  SpatialMap map;
  std::vector<std::pair<const char*, IntensityOp>> intensity;   // name, in order
  std::vector<std::pair<std::string, std::string>> parameters;  // for `inspect --sample`: name, value
};

struct TransformEntry {
  std::string name, help;
  // Draws from `random` and adds to `drawn`; not called where the transform is disabled.
  void (*draw)(const AugmentationOptions& options, const Extent3& patch, const Spacing3& spacing, Random random,
               Drawn& drawn);
  bool (*enabled)(const AugmentationOptions& options);
};
const std::vector<TransformEntry>& all_transforms();

Drawn draw_transforms(const AugmentationOptions& options, const Extent3& patch, const Spacing3& spacing, uint64_t seed,
                      int64_t sample);

}  // namespace vox
