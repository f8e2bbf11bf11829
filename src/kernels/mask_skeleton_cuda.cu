#include "kernels/mask_skeleton_cuda.h"

#include <utility>

#include "kernels/cuda_device.cuh"

namespace vox {

using namespace cuda;

namespace {

constexpr int kMaskThreads = 256;

// A word and its place.
struct WordPlace {
  int64_t index;
  int z, y, word;
  bool inside;
};
__device__ __forceinline__ WordPlace word_place(const MaskRows& rows, int64_t index) {
  const auto place = static_cast<unsigned>(index), row = place / static_cast<unsigned>(rows.words);
  return {index, static_cast<int>(row / rows.y % rows.z), static_cast<int>(row % rows.y),
          static_cast<int>(place % rows.words), index < rows.rows * rows.words};
}
__device__ __forceinline__ uint32_t bits_of(const MaskRows& rows, int word) {  // those that are voxels
  const int left = rows.x - 32 * word;
  return left >= 32 ? ~0u : (1u << left) - 1;
}

// A warp for each word.
__global__ void __launch_bounds__(kMaskThreads) pack_mask(uint32_t* words, const float* mask, MaskRows rows) {
  const int64_t thread = int64_t{blockIdx.x} * kMaskThreads + threadIdx.x;
  const int lane = static_cast<int>(thread % 32);
  const WordPlace at = word_place(rows, thread / 32);
  const int x = 32 * at.word + lane;
  const bool set = at.inside && x < rows.x && mask[at.index / rows.words * rows.x + x] > 0.5f;
  const uint32_t word = __ballot_sync(~0u, set);
  if (lane == 0 && at.inside) words[at.index] = word;
}

// The words of three voxels beside one another in a row, brought to the place of the middle one.
struct Beside {
  uint32_t left, here, right;
};
// `beyond` fills what is no voxel: 0 or all ones.
__device__ __forceinline__ Beside beside(const uint32_t* map, const MaskRows& rows, const WordPlace& at, int64_t index,
                                         uint32_t beyond) {
  const uint32_t pad = beyond & ~bits_of(rows, at.word), here = map[index] | pad;
  const uint32_t before = at.word > 0 ? map[index - 1] : beyond;
  const uint32_t after = at.word + 1 < rows.words ? map[index + 1] : beyond;
  return {here << 1 | before >> 31, here, here >> 1 | after << 31};
}

// Combines the words of the 3x3x3 neighbours, or of the cross.
template <SoftErosion kNeighbours, class Combine>
__device__ __forceinline__ uint32_t combined(const uint32_t* map, const MaskRows& rows, const WordPlace& at,
                                             uint32_t beyond, const Combine& combine) {
  const int64_t row = rows.words, slice = row * rows.y;
  uint32_t result = beyond;
#pragma unroll
  for (int dz = -1; dz <= 1; ++dz) {
    if (at.z + dz < 0 || at.z + dz >= rows.z) continue;
#pragma unroll
    for (int dy = -1; dy <= 1; ++dy) {
      if (at.y + dy < 0 || at.y + dy >= rows.y) continue;
      const int64_t index = at.index + dz * slice + dy * row;
      if (kNeighbours == SoftErosion::kCube || (dz == 0 && dy == 0)) {
        const Beside found = beside(map, rows, at, index, beyond);
        result = combine(result, combine(combine(found.left, found.here), found.right));
      } else if (dz == 0 || dy == 0) {
        result = combine(result, map[index]);
      }
    }
  }
  return result & bits_of(rows, at.word);
}
template <SoftErosion kErosion>
__device__ __forceinline__ uint32_t eroded(const uint32_t* map, const MaskRows& rows, const WordPlace& at) {
  return combined<kErosion>(map, rows, at, ~0u, [](uint32_t a, uint32_t b) { return a & b; });
}

template <SoftErosion kErosion>
__global__ void __launch_bounds__(kMaskThreads) erode_mask(uint32_t* out, const uint32_t* in, MaskRows rows) {
  const WordPlace at = word_place(rows, int64_t{blockIdx.x} * kMaskThreads + threadIdx.x);
  if (at.inside) out[at.index] = eroded<kErosion>(in, rows, at);
}

// What an opening takes away joins the skeleton; the map after the next replaces the current one.
template <SoftErosion kErosion>
__global__ void __launch_bounds__(kMaskThreads)
    add_mask_level(uint32_t* skeleton, uint32_t* current, const uint32_t* next, MaskRows rows, bool first, bool last) {
  const WordPlace at = word_place(rows, int64_t{blockIdx.x} * kMaskThreads + threadIdx.x);
  if (!at.inside) return;
  const uint32_t opened =
      combined<SoftErosion::kCube>(next, rows, at, 0u, [](uint32_t a, uint32_t b) { return a | b; });
  const uint32_t taken = current[at.index] & ~opened;
  skeleton[at.index] = first ? taken : skeleton[at.index] | taken;
  if (!last) current[at.index] = eroded<kErosion>(next, rows, at);
}

template <SoftErosion kErosion>
void run_levels(uint32_t* skeleton, uint32_t* current, uint32_t* next, const MaskRows& rows, int levels,
                Stream stream) {
  const auto blocks = static_cast<unsigned>((rows.count() + kMaskThreads - 1) / kMaskThreads);
  erode_mask<kErosion><<<blocks, kMaskThreads, 0, stream>>>(next, current, rows);
  check_launch("erosion of a mask");
  for (int level = 0; level < levels; ++level) {
    add_mask_level<kErosion>
        <<<blocks, kMaskThreads, 0, stream>>>(skeleton, current, next, rows, level == 0, level + 1 == levels);
    check_launch("skeleton of a mask");
    std::swap(current, next);
  }
}

}  // namespace

MaskRows mask_rows(const VolumeBatch& batch) {
  const Extent3& e = batch.extent;
  MaskRows rows{batch.volumes * e.z * e.y, static_cast<int>(e.z), static_cast<int>(e.y), static_cast<int>(e.x),
                static_cast<int>((e.x + 31) / 32)};
  VOX_CHECK(rows.count() < int64_t{1} << 31, batch.volumes, " volumes of ", e, " are too many for a skeleton at once");
  return rows;
}

void mask_skeleton_cuda(uint32_t* skeleton, const float* mask, const VolumeBatch& batch,
                        const SoftSkeletonOptions& options, uint32_t* workspace, Stream stream) {
  const MaskRows rows = mask_rows(batch);
  if (rows.count() == 0) return;
  const bool cross = options.erosion == SoftErosion::kCross;
  const int levels = options.iterations + (cross ? 1 : 0);
  if (levels == 0)
    return check(cudaMemsetAsync(skeleton, 0, sizeof(uint32_t) * static_cast<size_t>(rows.count()), stream),
                 "skeleton");
  const auto blocks = static_cast<unsigned>((32 * rows.count() + kMaskThreads - 1) / kMaskThreads);
  pack_mask<<<blocks, kMaskThreads, 0, stream>>>(workspace, mask, rows);
  check_launch("mask");
  const auto run = cross ? run_levels<SoftErosion::kCross> : run_levels<SoftErosion::kCube>;
  run(skeleton, workspace, workspace + rows.count(), rows, levels, stream);
}

}  // namespace vox
