// Cells are counted by bits: a warp goes down 32 columns and keeps the row before. Components of the foreground and of
// the background are numbered (kernels/components_cuda.h); of the latter, those that the edge of the volume meets are
// counted by who marks their number first.
#include "kernels/betti_cuda.h"

#include <algorithm>

#include "kernels/components_cuda.h"
#include "kernels/cuda_device.cuh"

namespace vox {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kRowsOfWarp = 16;

struct Volume {
  int z, y, x;
  int64_t voxels;
  int64_t tasks;  // of warps: 32 columns, some rows, one slice and the next
};

using Count = unsigned long long;  // what atomicAdd takes

// 32 voxels of a row, and of each whether the next one is set, too.
struct RowBits {
  uint32_t set = 0, pairs = 0;
};
__device__ __forceinline__ RowBits row_bits(const uint8_t* row, int first, int lane, const Volume& volume) {
  const uint32_t set = __ballot_sync(~0u, first + lane < volume.x && row[first + lane] != 0);
  const uint32_t beyond = first + 32 < volume.x && row[first + 32] != 0 ? 1u << 31 : 0u;
  return {set, set & (set >> 1 | beyond)};
}
__device__ __forceinline__ RowBits common(const RowBits& a, const RowBits& b) {
  return {a.set & b.set, a.pairs & b.pairs};
}

struct Cells {
  int vertices = 0, edges = 0, squares = 0, cubes = 0;
  __device__ void add(const RowBits& row, int& points, int& pairs) {
    points += __popc(row.set);
    pairs += __popc(row.pairs);
  }
};

// All lanes count the same.
__device__ Cells cells_of_task(const uint8_t* mask, int64_t task, int lane, const Volume& volume) {
  const int columns = (volume.x + 31) / 32, parts = (volume.y + kRowsOfWarp - 1) / kRowsOfWarp;
  const int first = static_cast<int>(task % columns) * 32;
  const int begin = static_cast<int>(task / columns % parts) * kRowsOfWarp, end = ::min(begin + kRowsOfWarp, volume.y);
  const int z = static_cast<int>(task / columns / parts);
  const uint8_t* slice = mask + int64_t{z} * volume.y * volume.x;
  const bool has_behind = z + 1 < volume.z;
  Cells cells;
  RowBits above, above_both;
  for (int y = begin; y < ::min(end + 1, volume.y); ++y) {
    const uint8_t* row = slice + int64_t{y} * volume.x;
    const RowBits here = row_bits(row, first, lane, volume);
    const RowBits behind = has_behind ? row_bits(row + int64_t{volume.y} * volume.x, first, lane, volume) : RowBits{};
    const RowBits both = common(here, behind);
    if (y > begin) {
      cells.add(common(here, above), cells.edges, cells.squares);
      cells.add(common(both, above_both), cells.squares, cells.cubes);
    }
    if (y < end) {
      cells.add(here, cells.vertices, cells.edges);
      cells.add(both, cells.edges, cells.squares);
    }
    above = here, above_both = both;
  }
  return cells;
}

// grid: blocks of a volume, volumes.
__global__ void __launch_bounds__(kThreads) count_cells(Count* counts, const uint8_t* mask, Volume volume) {
  __shared__ int of_warps[kWarps][4];
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int64_t task = int64_t{blockIdx.x} * kWarps + warp;
  Cells cells;
  if (task < volume.tasks) cells = cells_of_task(mask + blockIdx.y * volume.voxels, task, lane, volume);
  if (lane == 0) {
    of_warps[warp][0] = cells.vertices;
    of_warps[warp][1] = cells.edges;
    of_warps[warp][2] = cells.squares;
    of_warps[warp][3] = cells.cubes;
  }
  __syncthreads();
  if (threadIdx.x >= 4) return;
  int sum = 0;
  for (int i = 0; i < kWarps; ++i) sum += of_warps[i][threadIdx.x];
  if (sum != 0) atomicAdd(counts + 4 * blockIdx.y + threadIdx.x, static_cast<Count>(sum));
}

__global__ void __launch_bounds__(kThreads) complement(uint8_t* out, const uint8_t* mask, int64_t count) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count) out[i] = mask[i] == 0;
}

// A thread for each voxel of the six sides, in the order z, y, x; those of edges and corners come more than once.
__device__ __forceinline__ int64_t voxel_of_side(int64_t i, const Volume& volume) {
  const int64_t of_z = int64_t{volume.y} * volume.x, of_y = int64_t{volume.z} * volume.x;
  if (i < 2 * of_z) return i < of_z ? i : volume.voxels - 2 * of_z + i;
  i -= 2 * of_z;
  if (i < 2 * of_y) return i % of_y / volume.x * of_z + (i < of_y ? 0 : of_z - volume.x) + i % volume.x;
  i -= 2 * of_y;
  return i / 2 * volume.x + (i % 2 == 0 ? 0 : volume.x - 1);
}

// `marks`: a bit for each number, 0 at first; `open`: components of the background that meet a side.
__global__ void __launch_bounds__(kThreads)
    mark_open(uint32_t* open, uint32_t* marks, const uint32_t* labels, int64_t marks_stride, Volume volume) {
  const int64_t sides =
      2 * (int64_t{volume.y} * volume.x + int64_t{volume.z} * volume.x + int64_t{volume.z} * volume.y);
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= sides) return;
  const uint32_t label = labels[blockIdx.y * volume.voxels + voxel_of_side(i, volume)];
  if (label == 0) return;
  uint32_t* word = marks + blockIdx.y * marks_stride + label / 32;
  const uint32_t bit = 1u << (label % 32);
  if ((__ldcg(word) & bit) == 0 && (atomicOr(word, bit) & bit) == 0) atomicAdd(open + blockIdx.y, 1u);
}

struct Counts {  // of all volumes
  int64_t* cells;
  uint32_t *components, *background, *open;
};

__global__ void __launch_bounds__(kThreads) finish(int64_t* numbers, Counts counts, int64_t volumes) {
  const int64_t v = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (v >= volumes) return;
  const int64_t* cells = counts.cells + 4 * v;
  const int64_t euler = cells[0] - cells[1] + cells[2] - cells[3];
  const int64_t components = counts.components[v], cavities = int64_t{counts.background[v]} - counts.open[v];
  numbers[3 * v] = components;
  numbers[3 * v + 1] = components + cavities - euler;
  numbers[3 * v + 2] = cavities;
}

Volume volume_of(int64_t volumes, const Extent3& extent) {
  VOX_CHECK(extent.voxels() < int64_t{1} << 31 && volumes < 65536, "Betti numbers on the GPU: a volume of ", extent,
            ", ", volumes, " of them; at most 2^31 voxels and 65535 volumes are possible");
  const int64_t columns = (extent.x + 31) / 32, parts = (extent.y + kRowsOfWarp - 1) / kRowsOfWarp;
  return {static_cast<int>(extent.z), static_cast<int>(extent.y), static_cast<int>(extent.x), extent.voxels(),
          columns * parts * extent.z};
}

// How the workspace is divided, in uint64 numbers; what must be 0 at first lies at the beginning.
struct Parts {
  int64_t open, marks_stride, zeroed, components, background, cells, labels, inverted, of_components, all;
};
Parts parts_of(int64_t volumes, const Extent3& extent) {
  const auto words = [](int64_t bytes) { return (bytes + 7) / 8; };
  const int64_t voxels = volumes * extent.voxels();
  Parts parts{};
  parts.marks_stride = words((extent.voxels() + 1 + 7) / 8);
  parts.open = volumes * parts.marks_stride;
  parts.zeroed = parts.components = parts.open + words(4 * volumes);
  parts.background = parts.components + words(4 * volumes);
  parts.cells = parts.background + words(4 * volumes);
  parts.labels = parts.cells + 4 * volumes;
  parts.inverted = parts.labels + words(4 * voxels);
  parts.of_components = parts.inverted + words(voxels);
  parts.all = parts.of_components + words(4 * components_workspace(volumes, extent));
  return parts;
}

unsigned blocks_for(int64_t threads) {
  return static_cast<unsigned>((threads + kThreads - 1) / kThreads);
}

void zero(void* memory, int64_t bytes, cuda::Stream stream) {
  cuda::check(cudaMemsetAsync(memory, 0, static_cast<size_t>(bytes), stream), "Betti numbers");
}

}  // namespace

void count_cells_cuda(int64_t* cells, const uint8_t* mask, int64_t volumes, const Extent3& extent,
                      cuda::Stream stream) {
  if (volumes == 0) return;
  const Volume volume = volume_of(volumes, extent);
  zero(cells, volumes * 4 * static_cast<int64_t>(sizeof(int64_t)), stream);
  if (volume.voxels == 0) return;
  const dim3 grid(blocks_for(volume.tasks * 32), static_cast<unsigned>(volumes));
  count_cells<<<grid, kThreads, 0, stream>>>(reinterpret_cast<Count*>(cells), mask, volume);
  cuda::check_launch("cells");
}

int64_t betti_workspace(int64_t volumes, const Extent3& extent) {
  return parts_of(volumes, extent).all;
}

void betti_numbers_cuda(int64_t* numbers, const uint8_t* mask, int64_t volumes, const Extent3& extent,
                        uint64_t* workspace, cuda::Stream stream) {
  if (volumes == 0) return;
  if (extent.voxels() == 0) return zero(numbers, volumes * 3 * static_cast<int64_t>(sizeof(int64_t)), stream);
  const Volume volume = volume_of(volumes, extent);
  const Parts parts = parts_of(volumes, extent);
  const auto numbers32 = [&](int64_t first) { return reinterpret_cast<uint32_t*>(workspace + first); };
  const Counts counts{reinterpret_cast<int64_t*>(workspace + parts.cells), numbers32(parts.components),
                      numbers32(parts.background), numbers32(parts.open)};
  auto* inverted = reinterpret_cast<uint8_t*>(workspace + parts.inverted);
  uint32_t* labels = numbers32(parts.labels);
  zero(workspace, 8 * parts.zeroed, stream);
  count_cells_cuda(counts.cells, mask, volumes, extent, stream);
  components_cuda(labels, counts.components, mask, volumes, extent, Connectivity::kFaces,
                  numbers32(parts.of_components), stream);
  complement<<<blocks_for(volumes * volume.voxels), kThreads, 0, stream>>>(inverted, mask, volumes * volume.voxels);
  components_cuda(labels, counts.background, inverted, volumes, extent, Connectivity::kCorners,
                  numbers32(parts.of_components), stream);
  const int64_t sides = 2 * (extent.y * extent.x + extent.z * extent.x + extent.z * extent.y);
  const dim3 grid(blocks_for(sides), static_cast<unsigned>(volumes));
  mark_open<<<grid, kThreads, 0, stream>>>(counts.open, numbers32(0), labels, 2 * parts.marks_stride, volume);
  finish<<<blocks_for(volumes), kThreads, 0, stream>>>(numbers, counts, volumes);
  cuda::check_launch("Betti numbers");
}

}  // namespace vox
