// A block owns 15 x 7 input voxels (x, y) and marches along z. With the voxels before them these are 16 x 8, of each
// plane one product of 128 x 64: its warps have a row of 16 voxels each. The products of this plane and the one before
// are in shared memory; an output voxel is the sum of the (up to eight) that meet in it.
#include "kernels/narrow_cuda.h"

#include "kernels/narrow.cuh"

namespace vox::cuda {
namespace {

constexpr int kOwnX = kTileX - 1, kOwnY = kTileY - 1;
constexpr int kPitch = kWidth + 4;  // floats; neither rows nor columns of voxels meet in few banks
constexpr int kPlane = kTileX * kTileY * kPitch;

// Weights [product][summed], zeros where there is no product; then scale and shift [IN].
template <class T, int BLOCKS>
__device__ void fill_shared(const NarrowTask& task, T* weights, float* waiting) {
  constexpr int kIn = BLOCKS * kBlock;
  const T* const from = static_cast<const T*>(task.weights);
  const int width = task.kernel[0] * task.kernel[1] * task.kernel[2] * task.out;
  for (int i = static_cast<int>(threadIdx.x); i < kIn * kWidth; i += kWalkThreads) {
    const int in = i / kWidth, product = i % kWidth;
    weights[product * kRow<kIn> + place_of_input(in)] =
        product < width ? from[int64_t{in} * task.pitch + product] : from_float<T>(0);
  }
  fill_waiting(task, kIn, waiting);
}

// Two voxels of a plane, 8 apart along x: of each block of channels the thread's 8.
template <class T, int BLOCKS>
struct VoxelPair {
  uint4 raw[2][BLOCKS];
  bool exists[2];

  __device__ __forceinline__ void fill(const NarrowTask& task, int z, int y, int x, int q) {
    const bool line = z >= 0 && z < task.z && y >= 0 && y < task.y;
    const int64_t voxel = ((int64_t{blockIdx.z} * task.z + z) * task.y + y) * task.x_size + x;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const int at = x + 8 * row;
      exists[row] = line && at >= 0 && at < task.x_size;
#pragma unroll
      for (int k = 0; k < BLOCKS; ++k) {
        const int part = k >= task.first_blocks, channel = (k - part * task.first_blocks) * kBlock + 8 * q;
        const T* const from = static_cast<const T*>(task.x[part]) + (voxel + 8 * row) * task.channels[part] + channel;
        raw[row][k] = exists[row] ? load<T, 8>(from) : uint4{};
      }
    }
  }
  __device__ __forceinline__ void apply(const NarrowTask& task, const float* waiting, int q) {
#pragma unroll
    for (int k = 0; k < BLOCKS; ++k) {
      const int part = k >= task.first_blocks;
      if (!task.scale[part]) continue;
      float scale[8], shift[8];
      load_coefficients<8>(waiting + k * kBlock + 8 * q, 1, scale);
      load_coefficients<8>(waiting + BLOCKS * kBlock + k * kBlock + 8 * q, 0, shift);
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        float values[8];
        unpack<T, 8>(raw[row][k], values);
        activate(values, scale, shift, task.slope[part]);
        raw[row][k] = exists[row] ? pack<T, 8>(values) : uint4{};
      }
    }
  }
};

// The products of a warp's 16 voxels, into shared memory.
template <class T, int BLOCKS>
__device__ __forceinline__ void multiply(const VoxelPair<T, BLOCKS>& voxels, uint32_t weights, float* products) {
  constexpr int kIn = BLOCKS * kBlock;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const uint32_t own = weights + (((lane >> 4) * 8 + (lane & 7)) * kRow<kIn> + ((lane >> 3) & 1) * 8) * 2;
  float sums[kWidth / 8][4] = {};
#pragma unroll
  for (int step = 0; step < kIn / 16; ++step) {
    const LeftFactor a(voxels.raw[0][step / 2], voxels.raw[1][step / 2], step % 2 == 0);
#pragma unroll
    for (int j = 0; j < kWidth / 16; ++j) {
      uint32_t b[4];
      load_matrices(b, own + (j * 16 * kRow<kIn> + step * 16) * 2);
      multiply_add(sums[2 * j], a.words, b[0], b[1], T{});
      multiply_add(sums[2 * j + 1], a.words, b[2], b[3], T{});
    }
  }
  float* const to = products + (static_cast<int>(threadIdx.x) / 32 * kTileX + lane / 4) * kPitch + lane % 4 * 2;
#pragma unroll
  for (int j = 0; j < kWidth / 8; ++j) {
    *reinterpret_cast<float2*>(to + 8 * j) = {sums[j][0], sums[j][1]};
    *reinterpret_cast<float2*>(to + 8 * kPitch + 8 * j) = {sums[j][2], sums[j][3]};
  }
}

// The output planes that an input plane completes. `planes[0]` has its products, `planes[1]` those of the one before.
template <class Out>
__device__ __forceinline__ void store_planes(const NarrowTask& task, const float* const (&planes)[2], int z,
                                             int first_y, int first_x, Out* result) {
  constexpr int kWide = kOwnX * kStride, kHigh = kOwnY * kStride;
  const int count = kWide * kHigh * kStride * task.out;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kWalkThreads) {
    const int x = i % kWide, y = i / kWide % kHigh, half = i / (kWide * kHigh) % kStride;
    const int channel = i / (kWide * kHigh * kStride);
    const int to_z = kStride * z + half - task.padding[0], to_y = kStride * first_y + y - task.padding[1],
              to_x = kStride * first_x + x - task.padding[2];
    if (to_z < 0 || to_z >= task.out_z || to_y < 0 || to_y >= task.out_y || to_x < 0 || to_x >= task.out_x) continue;
    const int voxel = (1 + y / kStride) * kTileX + 1 + x / kStride;
    float sum = task.bias ? task.bias[channel] : 0;
#pragma unroll
    for (int dz = 0; dz < 2; ++dz) {
#pragma unroll
      for (int dy = 0; dy < 2; ++dy) {
#pragma unroll
        for (int dx = 0; dx < 2; ++dx) {
          const int tap_z = half + kStride * dz, tap_y = y % kStride + kStride * dy, tap_x = x % kStride + kStride * dx;
          if (tap_z >= task.kernel[0] || tap_y >= task.kernel[1] || tap_x >= task.kernel[2]) continue;
          const int tap = (tap_z * task.kernel[1] + tap_y) * task.kernel[2] + tap_x;
          sum += planes[dz][(voxel - dy * kTileX - dx) * kPitch + tap * task.out + channel];
        }
      }
    }
    const int64_t place = ((int64_t{blockIdx.z} * task.out_z + to_z) * task.out_y + to_y) * task.out_x + to_x;
    result[place * task.out + channel] = from_float<Out>(sum);
  }
}

template <class T, class Out, int BLOCKS>
__global__ void __launch_bounds__(kWalkThreads, 2) narrow_kernel(NarrowTask task, Out* result) {
  constexpr int kIn = BLOCKS * kBlock;
  extern __shared__ uint4 memory[];
  float* const products = reinterpret_cast<float*>(memory);
  float* const waiting = products + 2 * kPlane;
  T* const weights = reinterpret_cast<T*>(waiting + 2 * kIn);
  fill_shared<T, BLOCKS>(task, weights, waiting);
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(weights));
  const int lane = static_cast<int>(threadIdx.x) % 32, q = lane % 4;
  const int first_x = static_cast<int>(blockIdx.x) % task.tiles_x * kOwnX,
            first_y = static_cast<int>(blockIdx.x) / task.tiles_x * kOwnY;
  const int x = first_x - 1 + lane / 4, y = first_y - 1 + static_cast<int>(threadIdx.x) / 32;
  const int begin = static_cast<int>(blockIdx.y) * task.planes;
  const int end = begin + task.planes < task.owned_z ? begin + task.planes : task.owned_z;
  VoxelPair<T, BLOCKS> voxels;
  voxels.fill(task, begin - 1, y, x, q);
  __syncthreads();
  for (int z = begin - 1; z < end; ++z) {
    float* const here = products + (z & 1) * kPlane;
    voxels.apply(task, waiting, q);
    multiply<T, BLOCKS>(voxels, address, here);
    if (z + 1 < end) voxels.fill(task, z + 1, y, x, q);
    __syncthreads();
    const float* const planes[2] = {here, products + (~z & 1) * kPlane};
    if (z >= begin) store_planes<Out>(task, planes, z, first_y, first_x, result);
    __syncthreads();
  }
}

int owned(int64_t result, int padding) {  // input voxels that output voxels belong to
  return (static_cast<int>(result) - 1 + padding) / kStride + 1;
}
// As many planes a block as let the GPU finish soonest: each block computes one more than it owns.
int planes_of_block(int owned_z, int columns) {
  const int together = 2 * multiprocessors();
  int best = owned_z;
  int64_t least = INT64_MAX;
  for (int chunks = 1; chunks <= owned_z; ++chunks) {
    const int planes = tiles(owned_z, chunks);
    const int64_t cost = int64_t{tiles(columns * tiles(owned_z, planes), together)} * (planes + 1);
    if (cost < least) least = cost, best = planes;
  }
  return best;
}

template <class T, class Out, int BLOCKS>
void launch(const Narrow& layer, Out* result, Stream stream) {
  constexpr int kIn = BLOCKS * kBlock;
  constexpr size_t kBytes = (2 * kPlane + 2 * kIn) * sizeof(float) + kWidth * kRow<kIn> * sizeof(T);
  NarrowTask task = task_of(layer);
  const int tiles_y = tiles(owned(task.out_y, task.padding[1]), kOwnY);
  task.tiles_x = tiles(owned(task.out_x, task.padding[2]), kOwnX);
  task.owned_z = owned(task.out_z, task.padding[0]);
  task.planes = planes_of_block(task.owned_z, tiles_y * task.tiles_x * static_cast<int>(layer.n));
  const auto kernel = narrow_kernel<T, Out, BLOCKS>;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kBytes)),
        "shared memory of narrow_forward");
  const dim3 grid{static_cast<unsigned>(tiles_y * task.tiles_x),
                  static_cast<unsigned>(tiles(task.owned_z, task.planes)), static_cast<unsigned>(layer.n)};
  kernel<<<grid, kWalkThreads, kBytes, stream>>>(task, result);
}

template <class T, class Out>
void launch_for(const Narrow& layer, void* result, Stream stream) {
  Out* const to = static_cast<Out*>(result);
  switch ((layer.input[0].channels + layer.input[1].channels) / kBlock) {
    case 1:
      return launch<T, Out, 1>(layer, to, stream);
    case 2:
      return launch<T, Out, 2>(layer, to, stream);
    default:
      return launch<T, Out, 4>(layer, to, stream);
  }
}

}  // namespace

bool narrow_available(const Narrow& layer) {
  constexpr int64_t kMost = int64_t{1} << 28;
  int64_t width = layer.result.c, channels = 0;
  for (int a = 0; a < 3; ++a) {
    if (layer.kernel[a] > kMostKernel || layer.padding[a] < 0) return false;
    width *= layer.kernel[a];
  }
  for (const NarrowInput& input : layer.input) {
    if (input.channels % kBlock != 0 || !aligned(input.x)) return false;
    channels += input.channels;
  }
  return layer.type != Scalar::kFloat32 && width <= kWidth && layer.input[0].channels > 0 &&
         (channels == kBlock || channels == 2 * kBlock || channels == 4 * kBlock) && layer.n < 65536 &&
         layer.z < 65536 && layer.n * layer.z * layer.y * layer.x < kMost && layer.result.count() < (int64_t{1} << 31);
}

void narrow_forward(const Narrow& layer, void* result, Scalar to, Stream stream) {
  VOX_ASSERT(narrow_available(layer) && (to == Scalar::kFloat32 || to == layer.type));
  dispatch(layer.type, [&]<class T>(T) {
    if constexpr (sizeof(T) == 2) {
      to == Scalar::kFloat32 ? launch_for<T, float>(layer, result, stream) : launch_for<T, T>(layer, result, stream);
    }
  });
  check_launch("transposed convolution to few channels");
}

}  // namespace vox::cuda
