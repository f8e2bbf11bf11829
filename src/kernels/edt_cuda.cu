// Axis by axis. Along x from the bits of a row, a warp each. Along y and z a block holds neighbouring columns in shared
// memory and each voxel searches outward, as the CPU does where distances are short. 4 bytes a voxel are read and
// written three times, in the second level cache where the volumes fit.
//
// Signed distances take no second transform: what passes between the axes carries the sign of its voxel, and to a
// voxel of the other sign the distance along the axes so far is 0.
#include <limits>

#include "kernels/cuda_device.cuh"
#include "kernels/edt_cuda.h"

namespace vox {
namespace {

constexpr int kRowWarps = 4;
constexpr int64_t kColumnBytes = 96 << 10;  // of shared memory, at most: every GPU since Ampere has it

__device__ __forceinline__ float squared(int steps, double step_mm, float limit) {
  const double distance = steps * step_mm;
  return fminf(static_cast<float>(distance * distance), limit);
}

struct Row {
  int width, words;  // words of 32 voxels
  double step_mm;
  float limit;
};

// The nearest bits of one kind around a word, in voxels of the row; far away where there are none.
struct Nearest {
  static constexpr int kFar = 1 << 28;
  int before = -kFar, after = kFar;
  __device__ int steps(uint32_t bits, int first, int lane) const {
    const uint32_t lower = bits & ((1u << lane) - 1), upper = bits & ~((2u << lane) - 1);
    const int left = lower != 0 ? 31 - __clz(lower) + first : before;
    const int right = upper != 0 ? __ffs(upper) - 1 + first : after;
    return ::min(first + lane - left, right - first - lane);
  }
};

__device__ __forceinline__ uint32_t kind_of(uint32_t inside, bool of_inside, int word, const Row& row) {
  const int left = row.width - word * 32;
  const uint32_t valid = left >= 32 ? ~0u : (1u << left) - 1;
  return (of_inside ? inside : ~inside) & valid;
}

template <DistanceOf kDistance>
__global__ void along_x(float* out, const uint8_t* mask, int64_t rows, Row row) {
  extern __shared__ uint32_t words_of_block[];
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  uint32_t* inside = words_of_block + warp * row.words;
  const int64_t index = int64_t{blockIdx.x} * kRowWarps + warp;
  if (index >= rows) return;  // whole warps, and warps wait for no others
  const uint8_t* in = mask + index * row.width;
  for (int word = 0; word < row.words; ++word) {
    const int x = word * 32 + lane;
    const uint32_t bits = __ballot_sync(~0u, x < row.width && in[x] != 0);
    if (lane == 0) inside[word] = bits;
  }
  __syncwarp();
  Nearest near[2];       // [1]: voxels inside, [0]: outside
  int next[2] = {0, 0};  // word of near[].after
  for (int word = 0; word < row.words; ++word) {
    const int first = word * 32;
    for (int kind = 0; kind < 2; ++kind) {
      if (next[kind] > word) continue;
      for (next[kind] = word + 1; next[kind] < row.words; ++next[kind])
        if (kind_of(inside[next[kind]], kind == 1, next[kind], row) != 0) break;
      const bool found = next[kind] < row.words;
      near[kind].after =
          found ? next[kind] * 32 + __ffs(kind_of(inside[next[kind]], kind == 1, next[kind], row)) - 1 : Nearest::kFar;
    }
    const uint32_t bits = inside[word], outside = kind_of(bits, false, word, row);
    const bool mine = (bits >> lane & 1) != 0;
    const int steps = mine ? near[0].steps(outside, first, lane) : near[1].steps(bits, first, lane);
    const float distance = steps > row.width ? row.limit : squared(steps, row.step_mm, row.limit);
    const float signed_distance = kDistance == DistanceOf::kBoth ? (mine ? -distance : distance) : mine ? distance : 0;
    if (first + lane < row.width) out[index * row.width + first + lane] = signed_distance;
    if (bits != 0) near[1].before = first + 31 - __clz(bits);
    if (outside != 0) near[0].before = first + 31 - __clz(outside);
  }
}

struct Columns {
  int length, width, lanes;  // lanes: columns of a tile, a power of two
  int lane_bits, tiles;      // tiles of a row
  int64_t stride;            // from voxel to voxel of a column
  int64_t inner, inner_stride, outer_stride;
  double step_mm;
  float limit;
};

// min over d of f(row +- d) + d^2, until d^2 alone exceeds what is found; four steps between looks at that.
__device__ __forceinline__ float search(const float* here, const float* squares, int row, const Columns& columns) {
  const float value = *here, sign = value < 0 ? -1.0f : 1.0f;
  float best = fabsf(value);
  const int below = columns.length - 1 - row, both = ::min(row, below), reach = ::max(row, below);
  const auto take = [&](const float* there, float square) { best = fminf(best, fmaxf(sign * *there, 0.0f) + square); };
  int d = 1;
  const auto take_both = [&](int at) {
    take(here - at * columns.lanes, squares[at]);
    take(here + at * columns.lanes, squares[at]);
  };
  for (; d + 3 <= both && squares[d] < best; d += 4)
    for (int i = 0; i < 4; ++i) take_both(d + i);
  for (; d <= both && squares[d] < best; ++d) take_both(d);
  if (d <= both) return best;
  const int step = row > below ? -columns.lanes : columns.lanes;
  for (; d + 3 <= reach && squares[d] < best; d += 4)
    for (int i = 0; i < 4; ++i) take(here + (d + i) * step, squares[d + i]);
  for (; d <= reach && squares[d] < best; ++d) take(here + d * step, squares[d]);
  return best;
}

template <bool kRoot>
__global__ void along_columns(float* values, Columns columns) {
  extern __shared__ float tile[];  // [length][lanes], then the squares of the steps
  float* squares = tile + columns.length * columns.lanes;
  const int64_t outer = blockIdx.x / columns.tiles;
  const int first = static_cast<int>(blockIdx.x % columns.tiles) * columns.lanes;
  float* base =
      values + outer / columns.inner * columns.outer_stride + outer % columns.inner * columns.inner_stride + first;
  const int lane = static_cast<int>(threadIdx.x) & (columns.lanes - 1), count = columns.length * columns.lanes;
  const bool there = first + lane < columns.width, negative = base[0] < 0;
  bool near = false;  // to anything: else every distance stays at the limit
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    const float value = there ? base[(i >> columns.lane_bits) * columns.stride + lane] : 0;
    near |= there && (fabsf(value) < columns.limit || (value < 0) != negative);
    tile[i] = value;
  }
  for (int i = static_cast<int>(threadIdx.x); i < columns.length; i += static_cast<int>(blockDim.x))
    squares[i] = squared(i, columns.step_mm, columns.limit);
  near = __syncthreads_or(near);
  if (!there) return;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    const int row = i >> columns.lane_bits;
    const float best = near ? search(tile + i, squares, row, columns) : columns.limit;
    base[row * columns.stride + lane] = copysignf(kRoot ? sqrtf(best) : best, tile[i]);
  }
}

template <bool kRoot>
void run_columns(float* values, int64_t outer, Columns columns, cuda::Stream stream) {
  const auto bytes = [&] { return int64_t{columns.length} * (columns.lanes + 1) * int64_t{sizeof(float)}; };
  columns.lanes = 32;
  columns.lane_bits = 5;
  for (; columns.lanes > 1 && bytes() > kColumnBytes; columns.lanes /= 2) --columns.lane_bits;
  VOX_CHECK(bytes() <= kColumnBytes, "distances on the GPU: a volume has ", columns.length,
            " voxels along an axis; at most 12000 are possible");
  columns.tiles = (columns.width + columns.lanes - 1) / columns.lanes;
  const auto kernel = along_columns<kRoot>;
  if (bytes() > (48 << 10))
    cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes())),
                "shared memory of distances");
  const int64_t blocks = outer * columns.tiles;
  VOX_ASSERT(blocks < (int64_t{1} << 31));
  const int threads = bytes() > (24 << 10) ? 512 : 256;
  kernel<<<static_cast<unsigned>(blocks), threads, static_cast<size_t>(bytes()), stream>>>(values, columns);
  cuda::check_launch("distances along columns");
}

template <DistanceOf kDistance, bool kRoot>
void run(float* out, const uint8_t* mask, int64_t volumes, const Extent3& extent, const EdtOptions& options,
         cuda::Stream stream) {
  VOX_ASSERT(options.limit_mm > 0);
  if (volumes == 0 || extent.voxels() == 0) return;
  const float limit = static_cast<float>(options.limit_mm * options.limit_mm);
  const int64_t slice = extent.y * extent.x, rows = volumes * extent.z * extent.y;
  VOX_CHECK(extent.x <= 90000, "distances on the GPU: a volume has ", extent.x, " voxels along x; at most 90000");
  const Row row{static_cast<int>(extent.x), static_cast<int>((extent.x + 31) / 32), options.spacing.x_mm, limit};
  const size_t bytes = sizeof(uint32_t) * static_cast<size_t>(kRowWarps * row.words);
  const int64_t blocks = (rows + kRowWarps - 1) / kRowWarps;
  VOX_ASSERT(blocks < (int64_t{1} << 31));
  along_x<kDistance><<<static_cast<unsigned>(blocks), kRowWarps * 32, bytes, stream>>>(out, mask, rows, row);
  cuda::check_launch("distances along rows");
  Columns columns{};
  columns.width = row.width;
  columns.limit = limit;
  columns.length = static_cast<int>(extent.y);
  columns.step_mm = options.spacing.y_mm;
  columns.stride = extent.x;
  columns.inner = 1;
  columns.outer_stride = slice;
  run_columns<false>(out, volumes * extent.z, columns, stream);
  columns.length = static_cast<int>(extent.z);
  columns.step_mm = options.spacing.z_mm;
  columns.stride = slice;
  columns.inner = extent.y;
  columns.inner_stride = extent.x;
  columns.outer_stride = extent.voxels();
  run_columns<kRoot>(out, volumes * extent.y, columns, stream);
}

}  // namespace

void edt_cuda(float* mm, const uint8_t* mask, int64_t volumes, const Extent3& extent, const EdtOptions& options,
              DistanceOf distance, cuda::Stream stream) {
  if (distance == DistanceOf::kBoth)
    run<DistanceOf::kBoth, true>(mm, mask, volumes, extent, options, stream);
  else
    run<DistanceOf::kInside, true>(mm, mask, volumes, extent, options, stream);
}

void edt_squared_cuda(float* squared_mm2, const uint8_t* mask, int64_t volumes, const Extent3& extent,
                      const EdtOptions& options, cuda::Stream stream) {
  run<DistanceOf::kInside, false>(squared_mm2, mask, volumes, extent, options, stream);
}

}  // namespace vox
