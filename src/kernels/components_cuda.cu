// Union-find without locks (Playne & Hawick 2018): each voxel begins in the set of the first voxel of its run within
// 32, runs of neighbouring rows that touch are united by atomic minima, so that the root of a set is its first voxel
// whatever the order of threads. Roots are then counted in order. Labels hold the sets until they hold the numbers.
#include <algorithm>

#include "kernels/components_cuda.h"
#include "kernels/cuda_device.cuh"

namespace vox {
namespace {

constexpr uint32_t kNone = 0xffffffff, kNumbered = 0x80000000;
constexpr int kThreads = 256, kRounds = 16, kPart = kThreads * kRounds;  // voxels that a block numbers

struct Volume {
  int y, x;
  int64_t voxels;
  int64_t parts;
};

template <class T, bool kMask>
__device__ __forceinline__ bool same(T a, T b) {
  return kMask ? (a != 0) == (b != 0) : a == b;
}

// grid: blocks of a volume, volumes.
__device__ __forceinline__ int64_t voxel_of_thread() {
  return int64_t{blockIdx.x} * kThreads + threadIdx.x;
}

template <class T, bool kMask>
__global__ void begin_sets(uint32_t* labels, const T* values, Volume volume) {
  const int64_t voxel = voxel_of_thread(), base = blockIdx.y * volume.voxels;
  const bool inside = voxel < volume.voxels;
  const T value = inside ? values[base + voxel] : T{0};
  const T before = inside && voxel % volume.x != 0 ? values[base + voxel - 1] : T{0};
  const int lane = static_cast<int>(threadIdx.x % 32);
  const bool starts = lane == 0 || value == 0 || voxel % volume.x == 0 || !same<T, kMask>(value, before);
  const uint32_t begun = __ballot_sync(~0u, starts) & (~0u >> (31 - lane));
  if (inside)
    labels[base + voxel] =
        value == 0 ? kNone : static_cast<uint32_t>(voxel) - static_cast<uint32_t>(__clz(begun) - (31 - lane));
}

__device__ __forceinline__ uint32_t find(const uint32_t* parents, uint32_t voxel) {
  for (uint32_t parent = __ldcg(parents + voxel); parent != voxel; parent = __ldcg(parents + voxel)) voxel = parent;
  return voxel;
}

__device__ void unite(uint32_t* parents, uint32_t a, uint32_t b) {
  while (true) {
    a = find(parents, a);
    b = find(parents, b);
    if (a == b) return;
    const uint32_t larger = a > b ? a : b, smaller = a > b ? b : a;
    const uint32_t before = atomicMin(parents + larger, smaller);
    if (before == larger) return;
    a = before, b = smaller;
  }
}

// One of a voxel's neighbours in a row before its own; runs that another pair of voxels unites are left to it.
template <class T, bool kMask>
struct Joining {
  uint32_t* parents;
  const T* values;
  uint32_t voxel;
  T value;
  bool left_same, right_same, has_left, has_right;

  __device__ void join(int64_t other_voxel, bool aside) const {
    const uint32_t other = static_cast<uint32_t>(other_voxel);
    if (same<T, kMask>(values[other], value)) {
      if (!(left_same && same<T, kMask>(values[other - 1], value))) unite(parents, voxel, other);
      return;
    }
    if (!aside) return;
    if (has_left && !left_same && same<T, kMask>(values[other - 1], value)) unite(parents, voxel, other - 1);
    if (has_right && !right_same && same<T, kMask>(values[other + 1], value)) unite(parents, voxel, other + 1);
  }
};

template <class T, bool kMask>
__global__ void join_rows(uint32_t* labels, const T* all_values, Volume volume, int connectivity) {
  const int64_t voxel = voxel_of_thread(), base = blockIdx.y * volume.voxels;
  if (voxel >= volume.voxels) return;
  const T* values = all_values + base;
  uint32_t* parents = labels + base;
  const T value = values[voxel];
  if (value == 0) return;
  const int x = static_cast<int>(voxel % volume.x), y = static_cast<int>(voxel / volume.x % volume.y);
  const int64_t slice = int64_t{volume.y} * volume.x;
  Joining<T, kMask> at{parents, values, static_cast<uint32_t>(voxel), value, false, false, x > 0, x + 1 < volume.x};
  at.left_same = at.has_left && same<T, kMask>(values[voxel - 1], value);
  at.right_same = at.has_right && same<T, kMask>(values[voxel + 1], value);
  if (at.left_same && threadIdx.x % 32 == 0) unite(parents, at.voxel, at.voxel - 1);
  const bool edges = connectivity >= 18, corners = connectivity == 26, has_slice = voxel >= slice;
  if (y > 0) at.join(voxel - volume.x, edges);
  if (has_slice) at.join(voxel - slice, edges);
  if (edges && has_slice && y > 0) at.join(voxel - slice - volume.x, corners);
  if (edges && has_slice && y + 1 < volume.y) at.join(voxel - slice + volume.x, corners);
}

__device__ __forceinline__ int sum_of_block(int value) {
  __shared__ int warps[kThreads / 32];
  value = __reduce_add_sync(~0u, value);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  int sum = 0;
  for (const int warp : warps) sum += warp;
  __syncthreads();
  return sum;
}

// Every voxel's parent becomes its root; how many roots a part has. Only a voxel's own thread writes it, and whatever
// others read there meanwhile leads to the same root.
__global__ void find_roots(uint32_t* labels, uint32_t* roots, Volume volume) {
  uint32_t* parents = labels + blockIdx.y * volume.voxels;
  int count = 0;
  for (int round = 0; round < kRounds; ++round) {
    const int64_t voxel = int64_t{blockIdx.x} * kPart + round * kThreads + threadIdx.x;
    if (voxel >= volume.voxels) break;
    const uint32_t parent = __ldcg(parents + voxel);
    if (parent == kNone) continue;
    const uint32_t root = find(parents, parent);
    if (root != parent) parents[voxel] = root;
    count += root == static_cast<uint32_t>(voxel);
  }
  const int sum = sum_of_block(count);
  if (threadIdx.x == 0) roots[blockIdx.y * volume.parts + blockIdx.x] = static_cast<uint32_t>(sum);
}

// One block a volume: how many roots come before each part.
__global__ void scan_parts(uint32_t* roots, uint32_t* counts, Volume volume) {
  __shared__ uint32_t sums[kThreads];
  uint32_t* of_volume = roots + blockIdx.x * volume.parts;
  const int64_t share = (volume.parts + kThreads - 1) / kThreads;
  const int64_t begin = share * threadIdx.x, end = ::min(begin + share, volume.parts);
  uint32_t sum = 0;
  for (int64_t i = begin; i < end; ++i) sum += of_volume[i];
  sums[threadIdx.x] = sum;
  __syncthreads();
  uint32_t before = 0;
  for (unsigned i = 0; i < threadIdx.x; ++i) before += sums[i];
  for (int64_t i = begin; i < end; ++i) {
    const uint32_t own = of_volume[i];
    of_volume[i] = before;
    before += own;
  }
  if (threadIdx.x == kThreads - 1 && counts != nullptr) counts[blockIdx.x] = before;
}

__global__ void number_roots(uint32_t* labels, const uint32_t* roots, Volume volume) {
  __shared__ int warps[kThreads / 32];
  uint32_t* parents = labels + blockIdx.y * volume.voxels;
  uint32_t next = roots[blockIdx.y * volume.parts + blockIdx.x] + 1;
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int round = 0; round < kRounds; ++round) {
    const int64_t voxel = int64_t{blockIdx.x} * kPart + round * kThreads + threadIdx.x;
    const bool is_root = voxel < volume.voxels && parents[voxel] == static_cast<uint32_t>(voxel);
    const uint32_t found = __ballot_sync(~0u, is_root);
    if (lane == 0) warps[warp] = __popc(found);
    __syncthreads();
    uint32_t before = 0, all = 0;
    for (unsigned i = 0; i < kThreads / 32; ++i) {
      if (i < warp) before += static_cast<uint32_t>(warps[i]);
      all += static_cast<uint32_t>(warps[i]);
    }
    if (is_root)
      parents[voxel] = kNumbered | (next + before + static_cast<uint32_t>(__popc(found & ((1u << lane) - 1))));
    next += all;
    __syncthreads();
  }
}

__global__ void number_voxels(uint32_t* labels, Volume volume) {
  const int64_t voxel = voxel_of_thread();
  if (voxel >= volume.voxels) return;
  uint32_t* parents = labels + blockIdx.y * volume.voxels;
  const uint32_t parent = parents[voxel];
  if (parent == kNone)
    parents[voxel] = 0;
  else if ((parent & kNumbered) == 0)
    parents[voxel] = parents[parent] & ~kNumbered;  // a root's number stays marked until all have read it
}

__global__ void unmark_roots(uint32_t* labels, Volume volume) {
  const int64_t voxel = voxel_of_thread();
  if (voxel < volume.voxels) labels[blockIdx.y * volume.voxels + voxel] &= ~kNumbered;
}

int64_t parts_of(const Extent3& extent) {
  return (extent.voxels() + kPart - 1) / kPart;
}

template <class T, bool kMask>
void run(uint32_t* labels, uint32_t* counts, const T* values, int64_t volumes, const Extent3& extent,
         Connectivity connectivity, uint32_t* workspace, cuda::Stream stream) {
  if (volumes == 0) return;
  if (extent.voxels() == 0) {
    if (counts != nullptr)
      cuda::check(cudaMemsetAsync(counts, 0, sizeof(uint32_t) * static_cast<size_t>(volumes), stream), "components");
    return;
  }
  VOX_CHECK(extent.voxels() < kNumbered && volumes < 65536, "components on the GPU: a volume of ", extent, ", ",
            volumes, " of them; at most 2^31 voxels and 65535 volumes are possible");
  const Volume volume{static_cast<int>(extent.y), static_cast<int>(extent.x), extent.voxels(), parts_of(extent)};
  const unsigned deep = static_cast<unsigned>(volumes);
  const dim3 voxels(static_cast<unsigned>((extent.voxels() + kThreads - 1) / kThreads), deep);
  const dim3 parts(static_cast<unsigned>(volume.parts), deep);
  begin_sets<T, kMask><<<voxels, kThreads, 0, stream>>>(labels, values, volume);
  join_rows<T, kMask><<<voxels, kThreads, 0, stream>>>(labels, values, volume, static_cast<int>(connectivity));
  find_roots<<<parts, kThreads, 0, stream>>>(labels, workspace, volume);
  scan_parts<<<deep, kThreads, 0, stream>>>(workspace, counts, volume);
  number_roots<<<parts, kThreads, 0, stream>>>(labels, workspace, volume);
  number_voxels<<<voxels, kThreads, 0, stream>>>(labels, volume);
  unmark_roots<<<voxels, kThreads, 0, stream>>>(labels, volume);
  cuda::check_launch("components");
}

}  // namespace

int64_t components_workspace(int64_t volumes, const Extent3& extent) {
  return volumes * parts_of(extent);
}

void components_cuda(uint32_t* labels, uint32_t* counts, const uint8_t* mask, int64_t volumes, const Extent3& extent,
                     Connectivity connectivity, uint32_t* workspace, cuda::Stream stream) {
  run<uint8_t, true>(labels, counts, mask, volumes, extent, connectivity, workspace, stream);
}

void label_components_cuda(uint32_t* labels, uint32_t* counts, const uint32_t* values, int64_t volumes,
                           const Extent3& extent, Connectivity connectivity, uint32_t* workspace, cuda::Stream stream) {
  run<uint32_t, false>(labels, counts, values, volumes, extent, connectivity, workspace, stream);
}

}  // namespace vox
