// A block owns 16 x 8 input voxels (x, y) and marches along z. Of each plane it gathers the gradients that a voxel's 64
// products met in, as a matrix of 128 x 64 in shared memory; times the weights that is the voxels' gradient, and the
// voxels times that are the weights', which stay in registers to the end.
#include "kernels/narrow.cuh"
#include "kernels/row_sums.cuh"

namespace vox::cuda {
namespace {

constexpr int kVoxels = kTileX * kTileY;
constexpr int kGradRow = kWidth + 8;  // elements of a row of gradients or weights in shared memory

struct Place {  // of a product's output voxel, from the first of its input voxel
  int8_t z, y, x;
  int offset;
};

template <class T, int BLOCKS>
struct Shared {
  static constexpr int kIn = BLOCKS * kBlock, kVoxelRow = kIn + 8;
  alignas(16) T gradients[kVoxels * kGradRow];  // [voxel][product]
  alignas(16) T voxels[kVoxels * kVoxelRow];    // [voxel][channel]
  alignas(16) T weights[kIn * kGradRow];        // [channel, in the order of columns][product]
  alignas(16) float waiting[2 * kIn];
  Place places[kWidth];
  int width;
};

__device__ __forceinline__ uint32_t address_of(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

template <class T, int BLOCKS>
__device__ void fill_shared(const NarrowTask& task, Shared<T, BLOCKS>& shared) {
  constexpr int kIn = BLOCKS * kBlock;
  const T* const from = static_cast<const T*>(task.weights);
  const int taps = task.kernel[0] * task.kernel[1] * task.kernel[2], width = taps * task.out;
  for (int i = static_cast<int>(threadIdx.x); i < kIn * kWidth; i += kWalkThreads) {
    const int in = i / kWidth, product = i % kWidth, column = in / kBlock * kBlock + place_of_output(in % kBlock);
    shared.weights[column * kGradRow + product] =
        product < width ? from[int64_t{in} * task.pitch + product] : from_float<T>(0);
  }
  if (threadIdx.x < kWidth) {
    const int product = static_cast<int>(threadIdx.x), tap = product / task.out;
    const int z = tap / (task.kernel[2] * task.kernel[1]), y = tap / task.kernel[2] % task.kernel[1],
              x = tap % task.kernel[2];
    shared.places[product] = {static_cast<int8_t>(z), static_cast<int8_t>(y), static_cast<int8_t>(x),
                              ((z * task.out_y + y) * task.out_x + x) * task.out + product % task.out};
  }
  if (threadIdx.x == 0) shared.width = width;
  fill_waiting(task, kIn, shared.waiting);
}

// Where a voxel of the tile is, and whether it exists.
struct Voxel {
  int z, y, x;
  bool exists;
};
__device__ __forceinline__ Voxel voxel_of(const NarrowTask& task, int index, int z, int first_y, int first_x) {
  const int y = first_y + index / kTileX, x = first_x + index % kTileX;
  return {z, y, x, z < task.z && y < task.y && x < task.x_size};
}

template <class T, class From, int BLOCKS>
__device__ __forceinline__ void gather(const NarrowTask& task, Shared<T, BLOCKS>& shared, const From* dy, int z,
                                       int first_y, int first_x) {
  constexpr int kGroups = kWidth / 8;
  const auto inside = [](int place, int size) { return static_cast<unsigned>(place) < static_cast<unsigned>(size); };
#pragma unroll 1
  for (int round = 0; round < kVoxels * kGroups / kWalkThreads; ++round) {
    const int item = round * kWalkThreads + static_cast<int>(threadIdx.x), group = item % kGroups;
    const Voxel voxel = voxel_of(task, item / kGroups, z, first_y, first_x);
    const int to_z = kStride * voxel.z - task.padding[0], to_y = kStride * voxel.y - task.padding[1],
              to_x = kStride * voxel.x - task.padding[2];
    const int64_t corner =
        (((int64_t{blockIdx.z} * task.out_z + to_z) * task.out_y + to_y) * task.out_x + to_x) * task.out;
    float values[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const Place place = shared.places[group * 8 + i];
      const bool meets = voxel.exists && group * 8 + i < shared.width && inside(to_z + place.z, task.out_z) &&
                         inside(to_y + place.y, task.out_y) && inside(to_x + place.x, task.out_x);
      values[i] = meets ? to_float(dy[corner + place.offset]) : 0;
    }
    store<T, 8>(shared.gradients + item / kGroups * kGradRow + group * 8, pack<T, 8>(values));
  }
}

// What a thread brings into shared memory of a plane: 8 channels, always the same ones, of a voxel in every `kRows`-th
// row of the tile.
template <class T, int BLOCKS>
class Brought {
 public:
  __device__ __forceinline__ Brought(const NarrowTask& task, int first_y, int first_x)
      : task_(task),
        channel_(static_cast<int>(threadIdx.x) % kGroups * 8),
        part_(channel_ / kBlock >= task.first_blocks),
        y_(first_y + static_cast<int>(threadIdx.x) / kGroups / kTileX),
        x_(first_x + static_cast<int>(threadIdx.x) / kGroups % kTileX) {}

  __device__ __forceinline__ void fill(int z) {
    const int channels = task_.channels[part_];
    const int64_t at = ((int64_t{blockIdx.z} * task_.z + z) * task_.y + y_) * task_.x_size + x_;
    const T* const from = static_cast<const T*>(task_.x[part_]) + at * channels + channel_ - part_ * task_.channels[0];
#pragma unroll
    for (int round = 0; round < kRounds; ++round)
      raw_[round] = exists(round) ? load<T, 8>(from + int64_t{round * kRows} * task_.x_size * channels) : uint4{};
  }
  __device__ __forceinline__ void put(Shared<T, BLOCKS>& shared) {
    if (task_.scale[part_]) apply(shared.waiting + channel_);
    T* const to = shared.voxels + static_cast<int>(threadIdx.x) / kGroups * Shared<T, BLOCKS>::kVoxelRow + channel_;
#pragma unroll
    for (int round = 0; round < kRounds; ++round)
      store<T, 8>(to + round * kRows * kTileX * Shared<T, BLOCKS>::kVoxelRow, raw_[round]);
  }

 private:
  static constexpr int kGroups = BLOCKS * kBlock / 8, kRows = kWalkThreads / kGroups / kTileX, kRounds = kTileY / kRows;
  static_assert(kRows * kGroups * kTileX == kWalkThreads);

  __device__ __forceinline__ bool exists(int round) const { return y_ + round * kRows < task_.y && x_ < task_.x_size; }
  __device__ __forceinline__ void apply(const float* waiting) {
    float scale[8], shift[8];
    load_coefficients<8>(waiting, 1, scale);
    load_coefficients<8>(waiting + BLOCKS * kBlock, 0, shift);
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      float values[8];
      unpack<T, 8>(raw_[round], values);
      activate(values, scale, shift, task_.slope[part_]);
      raw_[round] = exists(round) ? pack<T, 8>(values) : uint4{};
    }
  }

  const NarrowTask& task_;
  const int channel_, part_, y_, x_;
  uint4 raw_[kRounds];
};

// Gradients of a warp's 16 voxels: 8 channels of two voxels for each block of 32.
template <class T, int BLOCKS>
__device__ __forceinline__ void store_voxels(const NarrowTask& task, const Shared<T, BLOCKS>& shared, int z,
                                             int first_y, int first_x, T* const (&da)[2]) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32, q = lane % 4;
  const uint32_t left =
      address_of(shared.gradients) + ((warp * 16 + (lane >> 3 & 1) * 8 + (lane & 7)) * kGradRow + (lane >> 4) * 8) * 2;
  const uint32_t right =
      address_of(shared.weights) + (((lane >> 4) * 8 + (lane & 7)) * kGradRow + (lane >> 3 & 1) * 8) * 2;
  uint32_t a[kWidth / 16][4];
#pragma unroll
  for (int step = 0; step < kWidth / 16; ++step) load_matrices(a[step], left + step * 32);
#pragma unroll 1
  for (int block = 0; block < BLOCKS; ++block) {
    float sums[4][4] = {};
#pragma unroll
    for (int step = 0; step < kWidth / 16; ++step) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        uint32_t b[4];
        load_matrices(b, right + ((block * kBlock + j * 16) * kGradRow + step * 16) * 2);
        multiply_add(sums[2 * j], a[step], b[0], b[1], T{});
        multiply_add(sums[2 * j + 1], a[step], b[2], b[3], T{});
      }
    }
    const int part = block >= task.first_blocks;
    if (!da[part]) continue;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const Voxel voxel = voxel_of(task, warp * kTileX + row * 8 + lane / 4, z, first_y, first_x);
      if (!voxel.exists) continue;
      const int e = 2 * row;
      const float values[8] = {sums[0][e], sums[0][e + 1], sums[1][e], sums[1][e + 1],
                               sums[2][e], sums[2][e + 1], sums[3][e], sums[3][e + 1]};
      const int64_t at = ((int64_t{blockIdx.z} * task.z + voxel.z) * task.y + voxel.y) * task.x_size + voxel.x;
      const int channel = (block - part * task.first_blocks) * kBlock + 8 * q;
      store<T, 8>(da[part] + at * task.channels[part] + channel, pack<T, 8>(values));
    }
  }
}

// Adds a plane to the gradients of a warp's 16 channels' weights.
template <class T, int BLOCKS>
__device__ __forceinline__ void add_weights(const Shared<T, BLOCKS>& shared, float (&dw)[kWidth / 8][4]) {
  constexpr int kVoxelRow = Shared<T, BLOCKS>::kVoxelRow;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const uint32_t left =
      address_of(shared.voxels) + (((lane >> 4) * 8 + (lane & 7)) * kVoxelRow + warp * 16 + (lane >> 3 & 1) * 8) * 2;
  const uint32_t right =
      address_of(shared.gradients) + (((lane >> 3 & 1) * 8 + (lane & 7)) * kGradRow + (lane >> 4) * 8) * 2;
#pragma unroll
  for (int step = 0; step < kVoxels / 16; ++step) {
    uint32_t a[4];
    load_transposed(a, left + step * 16 * kVoxelRow * 2);
#pragma unroll
    for (int j = 0; j < kWidth / 16; ++j) {
      uint32_t b[4];
      load_transposed(b, right + (step * 16 * kGradRow + j * 16) * 2);
      multiply_add(dw[2 * j], a, b[0], b[1], T{});
      multiply_add(dw[2 * j + 1], a, b[2], b[3], T{});
    }
  }
}

template <class T, class From, int BLOCKS>
__global__ void __launch_bounds__(kWalkThreads, 2)
    narrow_backward_kernel(NarrowTask task, const From* dy, T* first_da, T* second_da, float* partials) {
  extern __shared__ uint4 memory[];
  auto& shared = *reinterpret_cast<Shared<T, BLOCKS>*>(memory);
  T* const da[2] = {first_da, second_da};
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int first_x = static_cast<int>(blockIdx.x) % task.tiles_x * kTileX,
            first_y = static_cast<int>(blockIdx.x) / task.tiles_x * kTileY;
  const int begin = static_cast<int>(blockIdx.y) * task.planes;
  const int end = begin + task.planes < task.z ? begin + task.planes : task.z;
  const bool has_channels = warp < 2 * BLOCKS;
  float dw[kWidth / 8][4] = {};
  Brought<T, BLOCKS> voxels(task, first_y, first_x);
  voxels.fill(begin);
  fill_shared<T, BLOCKS>(task, shared);
  __syncthreads();
  for (int z = begin; z < end; ++z) {
    voxels.put(shared);
    gather<T, From, BLOCKS>(task, shared, dy, z, first_y, first_x);
    __syncthreads();
    if (z + 1 < end) voxels.fill(z + 1);
    if (da[0] || da[1]) store_voxels<T, BLOCKS>(task, shared, z, first_y, first_x, da);
    if (has_channels) add_weights<T, BLOCKS>(shared, dw);
    __syncthreads();
  }
  if (!has_channels) return;
  const int64_t row = (int64_t{blockIdx.z} * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  float* const to = partials + (row * BLOCKS * kBlock + warp * 16 + lane / 4) * kWidth + lane % 4 * 2;
#pragma unroll
  for (int j = 0; j < kWidth / 8; ++j) {
    *reinterpret_cast<float2*>(to + 8 * j) = {dw[j][0], dw[j][1]};
    *reinterpret_cast<float2*>(to + 8 * kWidth + 8 * j) = {dw[j][2], dw[j][3]};
  }
}

// From rows [in][64] to dw [in][width].
__global__ void __launch_bounds__(kFinishThreads)
    finish_kernel(const float* partials, int64_t rows, int in, int width, float* dw) {
  __shared__ double totals[1][kColumns];
  const int first = static_cast<int>(blockIdx.x) * kColumns;
  sum_rows<1>(partials, 0, rows, first, in * kWidth, totals);
  if (threadIdx.x >= kColumns) return;
  const int at = first + static_cast<int>(threadIdx.x), product = at % kWidth;
  if (product < width) dw[int64_t{at / kWidth} * width + product] = static_cast<float>(totals[0][threadIdx.x]);
}

struct Cut {
  int tiles_y, tiles_x, planes, chunks;
  int64_t rows(int64_t n) const { return n * chunks * tiles_y * tiles_x; }
};

// As many chunks along z as fill the GPU once; independent of it, so that the sums are, too.
Cut cut_of(const Narrow& layer) {
  constexpr int64_t kBlocks = 264;
  Cut cut{tiles(static_cast<int>(layer.y), kTileY), tiles(static_cast<int>(layer.x), kTileX), 1, 1};
  const int64_t columns = layer.n * cut.tiles_y * cut.tiles_x;
  const auto chunks = static_cast<int>(std::clamp<int64_t>(kBlocks / columns, 1, layer.z));
  cut.planes = tiles(static_cast<int>(layer.z), chunks);
  cut.chunks = tiles(static_cast<int>(layer.z), cut.planes);
  return cut;
}

int channels_of(const Narrow& layer) {
  return static_cast<int>(layer.input[0].channels + layer.input[1].channels);
}

template <class T, class From, int BLOCKS>
void launch(const Narrow& layer, const NarrowGradient& gradient, float* partials, Stream stream) {
  constexpr int kBytes = sizeof(Shared<T, BLOCKS>);
  const Cut cut = cut_of(layer);
  NarrowTask task = task_of(layer);
  task.tiles_x = cut.tiles_x;
  task.planes = cut.planes;
  const auto kernel = narrow_backward_kernel<T, From, BLOCKS>;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
        "shared memory of narrow_backward");
  const dim3 grid{static_cast<unsigned>(cut.tiles_y * cut.tiles_x), static_cast<unsigned>(cut.chunks),
                  static_cast<unsigned>(layer.n)};
  kernel<<<grid, kWalkThreads, kBytes, stream>>>(task, static_cast<const From*>(gradient.dy),
                                                 static_cast<T*>(gradient.da[0]), static_cast<T*>(gradient.da[1]),
                                                 partials);
}

template <class T, class From>
void launch_for(const Narrow& layer, const NarrowGradient& gradient, float* partials, Stream stream) {
  switch (channels_of(layer) / kBlock) {
    case 1:
      return launch<T, From, 1>(layer, gradient, partials, stream);
    case 2:
      return launch<T, From, 2>(layer, gradient, partials, stream);
    default:
      return launch<T, From, 4>(layer, gradient, partials, stream);
  }
}

}  // namespace

int64_t narrow_workspace(const Narrow& layer) {
  return cut_of(layer).rows(layer.n) * channels_of(layer) * kWidth * static_cast<int64_t>(sizeof(float));
}

void narrow_backward(const Narrow& layer, const NarrowGradient& gradient, void* workspace, Stream stream) {
  VOX_ASSERT(narrow_available(layer) && (gradient.from == Scalar::kFloat32 || gradient.from == layer.type));
  auto* const partials = static_cast<float*>(workspace);
  dispatch(layer.type, [&]<class T>(T) {
    if constexpr (sizeof(T) == 2) {
      gradient.from == Scalar::kFloat32 ? launch_for<T, float>(layer, gradient, partials, stream)
                                        : launch_for<T, T>(layer, gradient, partials, stream);
    }
  });
  check_launch("gradient of a transposed convolution to few channels");
  const int in = channels_of(layer);
  const int width = layer.kernel[0] * layer.kernel[1] * layer.kernel[2] * static_cast<int>(layer.result.c);
  finish_kernel<<<static_cast<unsigned>(in * kWidth / kColumns), kFinishThreads, 0, stream>>>(
      partials, cut_of(layer).rows(layer.n), in, width, gradient.dw);
  check_launch("gradient of a transposed convolution to few channels, its sum");
}

}  // namespace vox::cuda
