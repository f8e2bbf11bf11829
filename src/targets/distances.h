// Distances within a patch, of which a part may be hidden: what lies there could be nearer than anything that is seen.
// Nothing lies beyond the patch: a network sees no more of it when it predicts.
#pragma once

#include <vector>

#include "kernels/edt.h"
#include "targets/target.h"

namespace vox {

// Squared, of each voxel to the nearest that `is_there` says, as edt_squared_cpu: at the limit where there is none.
template <class IsThere>
std::vector<float> squared_distances_to(const IsThere& is_there, const Extent3& extent, const EdtOptions& options) {
  std::vector<uint8_t> elsewhere(static_cast<size_t>(extent.voxels()));
  for (size_t i = 0; i < elsewhere.size(); ++i) elsewhere[i] = !is_there(static_cast<int64_t>(i));
  std::vector<float> squared(elsewhere.size());
  edt_squared_cpu(squared.data(), elsewhere.data(), extent, options);
  return squared;
}

// To the nearest voxel that is ignored or masked. No larger distance can be known.
inline std::vector<float> squared_distances_to_hidden(const LabelPatch& patch, const EdtOptions& options) {
  return squared_distances_to([&](int64_t voxel) { return !patch.seen(voxel); }, patch.extent, options);
}

}  // namespace vox
