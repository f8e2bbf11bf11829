// The channels of a sample in one launch. A block takes a tile of voxels: where they come from is computed once for all
// channels. Their values collect in shared memory and leave as the output has them, all channels of a voxel side by
// side, in pieces of 16 bytes.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/gather_cells.cuh"
#include "kernels/gather_runs.cuh"

namespace vox::cuda {
namespace {

constexpr int kLargeTile = 1024, kSmallTile = 512;  // voxels
constexpr int64_t kLargeTileBytes = 24 << 10;
constexpr int64_t kPlaneGapBytes = 16;              // channels of neighbouring voxels lie in different banks
constexpr int64_t kMostCoefficientBytes = 8 << 10;  // of a row: with any tile there is room for them
constexpr int kThreads = kChannelThreads;

template <class Out>
__device__ void store_between_others(const ChannelsTask& task, const Out* tile, Out* out, int voxels) {
  for (int i = threadIdx.x; i < voxels * task.count; i += kThreads) {
    const int voxel = i / task.count, c = i - voxel * task.count;
    out[voxel * task.shared.output.voxel_stride + c] = tile[c * task.plane + voxel];
  }
}

__device__ uint32_t word_of(const float* tile, const int* places) {
  return __float_as_uint(tile[places[0]]);
}
__device__ uint32_t word_of(const uint16_t* tile, const int* places) {
  return tile[places[0]] | static_cast<uint32_t>(tile[places[1]]) << 16;
}

// Where the elements of a piece lie in the tile is the same for every piece `count` pieces further, but for the voxels
// in between: a thread stays with such pieces.
template <class Out>
__device__ void store_pieces(const ChannelsTask& task, const Out* tile, Out* out, int lead, int pieces) {
  constexpr int kPiece = 16 / sizeof(Out), kPerWord = kPiece / 4;
  const int together = kThreads / task.count * task.count, thread = threadIdx.x;
  if (thread >= together) return;
  int places[kPiece];
#pragma unroll
  for (int i = 0; i < kPiece; ++i) {
    const int element = lead + thread * kPiece + i, voxel = element / task.count;
    places[i] = (element - voxel * task.count) * task.plane + voxel;
  }
  for (int piece = thread; piece < pieces; piece += together) {
    *reinterpret_cast<uint4*>(out + lead + piece * kPiece) = {word_of(tile, places), word_of(tile, places + kPerWord),
                                                              word_of(tile, places + 2 * kPerWord),
                                                              word_of(tile, places + 3 * kPerWord)};
    tile += together / task.count * kPiece;
  }
}

template <class Out>
__device__ void store_tile(const ChannelsTask& task, const Out* tile, int64_t first_voxel, int voxels) {
  constexpr int kPiece = 16 / sizeof(Out);
  Out* out = static_cast<Out*>(task.shared.output.data) + first_voxel * task.shared.output.voxel_stride;
  if (task.shared.output.voxel_stride != task.count) return store_between_others(task, tile, out, voxels);
  const int total = voxels * task.count;
  const int misaligned = static_cast<int>(reinterpret_cast<uintptr_t>(out) % 16 / sizeof(Out));
  const int lead = ::min(total, (kPiece - misaligned) % kPiece);
  const int pieces = (total - lead) / kPiece, rest = lead + pieces * kPiece;
  store_pieces(task, tile, out, lead, pieces);
  for (int i = threadIdx.x; i < lead + total - rest; i += kThreads) {
    const int element = i < lead ? i : rest + i - lead, voxel = element / task.count;
    out[element] = tile[(element - voxel * task.count) * task.plane + voxel];
  }
}

template <class Out, Interpolation kHow>
__global__ void __launch_bounds__(kThreads, 7)
    gather_channels_kernel(const __grid_constant__ ChannelsTask task, int rows_per_block, int coefficient_floats) {
  extern __shared__ __align__(16) float memory[];  // coefficients, tile
  __shared__ RowPlace places[kMaxGatherRows];
  const BlockRows rows = prepare_rows(task.shared, rows_per_block, places, coefficient_floats > 0 ? memory : nullptr);
  __syncthreads();
  Out* tile = reinterpret_cast<Out*>(memory + coefficient_floats);
  const int length = static_cast<int>(task.shared.output.extent.x), voxels = rows.count * length;
  for (int start = 0; start < voxels; start += task.tile) {
    const TileRange range{start, ::min(task.tile, voxels - start)};
    if constexpr (kHow == Interpolation::kNearest)
      fill_nearest(task, rows, range, tile);
    else
      fill_linear(task, rows, range, tile);
    __syncthreads();
    store_tile(task, tile, rows.first * length + start, range.count);
    __syncthreads();
  }
}

int64_t coefficient_bytes(const GatherTask& task, int64_t rows) {
  return task.grid ? rows * 3 * task.points[2] * static_cast<int64_t>(sizeof(float)) : 0;
}

// Of maps that move whole voxels.
int run_step_of(const GatherTask& task) {
  if (task.grid || task.sections) return 0;
  int64_t step = 0;
  for (int axis = 0; axis < 3; ++axis) {
    const GatherAxis& row = task.axis[axis];
    for (const float entry : {row.z, row.y, row.x})
      if (entry != 0 && std::abs(entry) != 1) return 0;
    if (row.offset != std::floor(row.offset) || (row.x != 0 && step != 0)) return 0;
    if (row.x != 0) step = static_cast<int64_t>(row.x) * task.source.stride[axis];
  }
  return static_cast<int>(step);
}

void launch(ChannelsTask& task, Stream stream) {
  const GatherTask& shared = task.shared;
  const Extent3& extent = shared.output.extent;
  if (extent.voxels() == 0) return;
  const int64_t element = size_of(shared.output.dtype), channel_bytes = task.count * element;
  task.tile = channel_bytes * kLargeTile <= kLargeTileBytes ? kLargeTile : kSmallTile;
  task.plane = task.tile + static_cast<int>(kPlaneGapBytes / element);
  task.run_step = run_step_of(shared);
  const int64_t tile_bytes = channel_bytes * task.plane;
  int64_t rows = std::clamp<int64_t>(task.tile / extent.x, 1, kMaxGatherRows);
  if (shared.grid) rows = std::min(rows, (kSharedBytes - tile_bytes) / 16 * 16 / coefficient_bytes(shared, 1));
  const int64_t before_tile = (coefficient_bytes(shared, rows) + 15) / 16 * 16;
  const auto start = [&](auto kernel) {
    const int64_t blocks = (extent.z * extent.y + rows - 1) / rows;
    kernel<<<static_cast<unsigned>(blocks), kThreads, static_cast<size_t>(before_tile + tile_bytes), stream>>>(
        task, static_cast<int>(rows), static_cast<int>(before_tile / 4));
    check_launch("gather of channels");
  };
  const bool half = shared.output.dtype == DType::kBFloat16;
  if (shared.interpolation == Interpolation::kNearest)
    start(half ? gather_channels_kernel<uint16_t, Interpolation::kNearest>
               : gather_channels_kernel<float, Interpolation::kNearest>);
  else
    start(half ? gather_channels_kernel<uint16_t, Interpolation::kLinear>
               : gather_channels_kernel<float, Interpolation::kLinear>);
}

bool has_channels_kernel(const GatherTask& task) {
  const GatherSource<void>& source = task.source;
  const int64_t elements = (source.end[0] - source.begin[0]) * source.stride[0];
  return elements <= std::numeric_limits<int>::max() && task.interpolation != Interpolation::kLabel &&
         task.output.dtype != DType::kUInt8 && task.output.voxel_stride > 1 &&
         coefficient_bytes(task, 1) <= kMostCoefficientBytes;
}

bool same_places(const GatherTask& a, const GatherTask& b) {
  bool same = a.grid == b.grid && a.sections == b.sections && a.source.padding == b.source.padding;
  for (int axis = 0; axis < 3; ++axis) {
    const GatherAxis &p = a.axis[axis], &q = b.axis[axis];
    same = same && p.z == q.z && p.y == q.y && p.x == q.x && p.offset == q.offset;
    same = same && a.points[axis] == b.points[axis] && a.spacing[axis] == b.spacing[axis];
    same = same && a.source.origin[axis] == b.source.origin[axis] && a.source.size[axis] == b.source.size[axis];
    same = same && a.source.begin[axis] == b.source.begin[axis] && a.source.end[axis] == b.source.end[axis];
    same = same && a.source.stride[axis] == b.source.stride[axis];
  }
  return same;
}

// Whether `task` writes channel number `ahead` after the one that `first` writes, by the same way.
bool joins(const GatherTask& first, const GatherTask& task, int ahead) {
  const GatherOutput &a = first.output, &b = task.output;
  const auto* next = static_cast<const std::byte*>(a.data) + ahead * size_of(a.dtype);
  return ahead < a.voxel_stride && b.data == next && a.dtype == b.dtype && a.extent == b.extent &&
         a.voxel_stride == b.voxel_stride && first.interpolation == task.interpolation && same_places(first, task);
}

Channel channel_of(const GatherTask& task) {
  const GatherSource<void>& source = task.source;
  return {source.data, source.scale, source.offset, source.pad_value, task.stored, source.scaled};
}

}  // namespace

void gather(std::span<const GatherTask> tasks, Stream stream) {
  for (size_t i = 0; i < tasks.size();) {
    ChannelsTask joined{
        .shared = tasks[i], .count = 1, .tile = 0, .plane = 0, .run_step = 0, .channels = {channel_of(tasks[i])}};
    if (has_channels_kernel(tasks[i]))
      while (i + joined.count < tasks.size() && joined.count < kMostChannels &&
             joins(tasks[i], tasks[i + joined.count], joined.count)) {
        joined.channels[joined.count] = channel_of(tasks[i + joined.count]);
        ++joined.count;
      }
    if (joined.count == 1)
      gather(tasks[i], stream);
    else
      launch(joined, stream);
    i += static_cast<size_t>(joined.count);
  }
}

}  // namespace vox::cuda
