// Kernels on volumes as operations on tensors [N, C, Z, Y, X], each volume by itself, on the device of the tensors.
// Matches of persistent features are found on CPU threads wherever the tensors are, and so are all pairs and distances
// in a build without CUDA; the soft skeleton is then composed of torch's poolings.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/persistence.h"
#include "kernels/persistence_matching.h"
#include "kernels/soft_skeleton.h"

namespace at {
class Tensor;
}

namespace vox::ops {

// With gradient; its backward pass runs the erosions again and keeps nothing but the input.
at::Tensor soft_skeleton(const at::Tensor& values, const SoftSkeletonOptions& options);
// Likewise: the least value near each voxel.
at::Tensor soft_erode(const at::Tensor& values, SoftErosion erosion);

// clDice of each volume, [N, C], with gradient; see kernels/cldice_cuda.h. The gradient is made with the value.
struct ClDiceOptions {
  SoftSkeletonOptions skeleton;
  double smooth = 1;
  bool logits = false;  // of one channel: probabilities are made in passing
  bool mask = false;    // the target has no values but 0 and 1
};
bool has_fused_cldice(const at::Tensor& values);
at::Tensor fused_cldice(const at::Tensor& values, const at::Tensor& target, const at::Tensor& valid,
                        const ClDiceOptions& options);

// Voxels to the nearest voxel where `mask` (bool) holds; `limit` where that is farther or there is none. No gradient.
at::Tensor distance_to(const at::Tensor& mask, double limit);
// Negative inside the mask, positive outside, never beyond +-limit. No gradient.
at::Tensor signed_distance(const at::Tensor& mask, double limit);

// Birth and death of the features of each volume as places in the flattened tensor; a death of -1: none.
struct PairPlaces {
  std::vector<int64_t> birth, death;
  std::vector<int64_t> volume;  // whose they are
};
PairPlaces persistence_places(const at::Tensor& values, int dimension, const PersistenceOptions& options);
// Whether that happens where the values are, rather than on the CPU.
bool has_persistence(const at::Tensor& values, int dimension);

// The same of two maps, voxels as vertices, and which features of both are the same one.
struct MatchedPlaces {
  PairPlaces first, second;
  std::vector<std::array<size_t, 2>> matches;  // places in the two lists
};
MatchedPlaces matched_places(const at::Tensor& first, const at::Tensor& second, int dimension, Level level);

}  // namespace vox::ops
