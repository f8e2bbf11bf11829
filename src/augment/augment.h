// Augmentation: parameters are drawn first, from (seed, sample, transform); the spatial ones compose into one map, the
// intensity ones run on the gathered patch. A transform is one file and one line in transforms.list: the list gives the
// order, and the number beside a name its random stream, which no other line may have and which never changes.
// docs/add-a-transform.md walks through adding one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "config/options.h"
#include "kernels/gather.h"
#include "kernels/intensity_steps.h"

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
// The same as data, for a GPU; nothing where the channel is left alone.
using StepOfChannel = std::function<std::optional<IntensityStep>(int64_t channel)>;

struct Drawn {  // what was drawn for one sample
  SpatialMap map;
  std::shared_ptr<Deformation> deformation;                     // of positions that the map gives; null: none
  bool rotates = false;                                         // rotate happened
  std::vector<int64_t> source_channel;                          // image channel to read for each; empty: itself
  std::vector<std::pair<const char*, IntensityOp>> intensity;   // name, in order
  std::vector<StepOfChannel> steps;                             // of each of them; a null one has no such form
  std::vector<std::pair<std::string, std::string>> parameters;  // for `inspect --sample`: name, value

  int64_t channel_to_read(int64_t channel) const {
    return source_channel.empty() ? channel : source_channel[static_cast<size_t>(channel)];
  }
};
GatherMap to_gather_map(const Drawn& drawn, const Extent3& begin, const Extent3& extent);
std::vector<IntensityStep> steps_of(const Drawn& drawn, int64_t channel);  // all of them must be given as data

struct DrawContext {  // of the sample that is drawn for
  Extent3 patch;
  Spacing3 spacing;
  int64_t channels = 1;               // of the image
  std::vector<int64_t> continuous{};  // those whose values may change; empty: all
  std::optional<Box3> kept{};         // what a shift must leave in sight, in voxels of the patch before any transform
};

struct TransformEntry {
  std::string name, help;
  // Draws from `random` and adds to `drawn`; not called where the transform is disabled.
  void (*draw)(const AugmentationOptions& options, const DrawContext& context, Random random, Drawn& drawn);
  bool (*enabled)(const AugmentationOptions& options);
  bool on_host_only = false;  // changes values, and does not say how as data
  uint32_t stream = 0;        // from the list
};
const std::vector<TransformEntry>& all_transforms();
std::string host_only_transform(const AugmentationOptions& options);  // the first that is on; empty: none is

Drawn draw_transforms(const AugmentationOptions& options, const DrawContext& context, uint64_t seed, int64_t sample);
Drawn draw_transforms(const AugmentationOptions& options, const Extent3& patch, const Spacing3& spacing, uint64_t seed,
                      int64_t sample, int64_t channels = 1);

}  // namespace vox
