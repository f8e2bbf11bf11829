// Patch, pooling, features and batch of a U-Net from the shapes and spacings of a dataset, by the rules of nnU-Net v2
// (Isensee et al. 2021, its default 3D full-resolution plan). Pure functions: nothing is read here.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/shape.h"

namespace vox {

using Size3 = std::array<double, 3>;  // medians of sizes, z, y, x: not always whole

struct CaseShape {  // what lies in the box of voxels that are not zero
  Extent3 extent;
  Spacing3 spacing;
};

struct Topology {
  Extent3 patch;    // a multiple of divisor
  Extent3 divisor;  // 2 to the number of poolings of each axis
  std::vector<Extent3> strides, kernels;
};

// An axis is pooled while it is long enough (8 voxels) and its voxels are less than twice as large as the smallest; its
// kernels are 1 until then.
Topology pool_axes(const Spacing3& spacing, const Size3& size);

// 32, 64, ... up to 320.
std::vector<int64_t> features_of(size_t stages);

// Of the outputs of deep supervision, finest first: 1, 1/2, 1/4, ... and 0 for the coarsest, summing to 1.
std::vector<double> supervision_weights(size_t outputs);

// Values that the convolutions of a plain U-Net put out, two a stage: nnU-Net's stand-in for memory.
double feature_map_values(const Topology& topology, int64_t classes);

struct NetworkPlan {
  Spacing3 spacing;    // that volumes are brought to
  Size3 median_shape;  // of the volumes then
  Topology topology;
  std::vector<int64_t> features;
  int64_t batch = 2, batch_by_memory = 2;  // the first covers at most 5 % of the dataset
  bool low_resolution = false;             // nnU-Net would add a cascade from a coarser grid
};

// The median of each axis; an axis much coarser than the others takes its 10th percentile.
Spacing3 target_spacing(const std::vector<CaseShape>& cases);
// One case or more.
NetworkPlan plan_network(const std::vector<CaseShape>& cases, int64_t classes);

// As numpy has it: between the two nearest ranks.
double percentile(std::vector<double> values, double percent);

}  // namespace vox
