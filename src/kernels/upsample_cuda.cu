#include "kernels/upsample_cuda.h"

#include "kernels/channels_cuda.cuh"
#include "kernels/tensor_core.cuh"

// A thread's share of 32 output channels is 8 neighbours, too: the columns of the product are stored by that order.
namespace vox::cuda {
namespace {

constexpr int kWarps = kWalkThreads / 32;

struct UpWalk {
  int z = 0, y = 0, x = 0, out = 0;  // sizes of the input, channels of the output
  int taps = 8;                      // of 8, that a thread block has the weights of; divides 8
  int tiles = 0;                     // of a sample
  bool channels_last = false;        // the weights
  const float *scale = nullptr, *shift = nullptr;
  float slope = 1;
};

// Eight weights as they lie in memory, one input channel's: eight taps of one output channel, or (channels last) eight
// output channels of one tap. `place(i)` is where the i-th goes, negative: nowhere.
template <class T, class Place>
__device__ __forceinline__ void spread(const T* from, T* to, Place&& place) {
  const uint4 raw = load<T, 8>(from);
  T weights[8];
  memcpy(weights, &raw, sizeof(raw));
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int at = place(i);
    if (at >= 0) to[at] = weights[i];
  }
}

// Weights [tap][column][summed].
template <class T, int IN>
__device__ void fill_weights(const UpWalk& walk, const T* weights, int first_out, int first_tap, T* to) {
  const auto place = [](int in, int out, int own) {
    return (own * kBlock + place_of_output(out)) * kRow<IN> + place_of_input(in);
  };
  if (walk.channels_last) {
    for (int i = static_cast<int>(threadIdx.x); i < IN * walk.taps * 4; i += kWalkThreads) {
      const int in = i / 4 / walk.taps, own = i / 4 % walk.taps, out = i % 4 * 8;
      spread(weights + (int64_t{in} * 8 + first_tap + own) * walk.out + first_out + out, to,
             [&](int k) { return place(in, out + k, own); });
    }
    return;
  }
  for (int i = static_cast<int>(threadIdx.x); i < IN * kBlock; i += kWalkThreads) {
    const int in = i / kBlock, out = i % kBlock;
    spread(weights + (int64_t{in} * walk.out + first_out + out) * 8, to, [&](int tap) {
      const int own = tap - first_tap;
      return own >= 0 && own < walk.taps ? place(in, out, own) : -1;
    });
  }
}

// The weights, then scale and shift [IN] and the bias [32] in float32.
template <class T, int IN>
__device__ void fill_shared(const UpWalk& walk, const T* weights, const T* bias, int first_out, int first_tap, T* to) {
  fill_weights<T, IN>(walk, weights, first_out, first_tap, to);
  auto* const floats = reinterpret_cast<float*>(to + walk.taps * kBlock * kRow<IN>);
  const int64_t own = int64_t{blockIdx.z} * IN;
  for (int i = static_cast<int>(threadIdx.x); i < IN; i += kWalkThreads) {
    floats[i] = walk.scale ? walk.scale[own + i] : 1;
    floats[IN + i] = walk.shift ? walk.shift[own + i] : 0;
  }
  if (threadIdx.x < kBlock) floats[2 * IN + threadIdx.x] = bias ? to_float(bias[first_out + threadIdx.x]) : 0;
}

// A thread's rows of the left factor: ROWS voxels, 8 apart, of each block of channels its 8; with norm and activation.
template <class T, int IN, int ROWS>
struct Voxels {
  uint4 blocks[ROWS][IN / kBlock];

  __device__ __forceinline__ void fill(const T* from, const bool (&exists)[ROWS]) {
#pragma unroll
    for (int row = 0; row < ROWS; ++row) {
#pragma unroll
      for (int k = 0; k < IN / kBlock; ++k)
        blocks[row][k] = exists[row] ? load<T, 8>(from + int64_t{row} * 8 * IN + k * kBlock) : uint4{};
    }
  }
  __device__ __forceinline__ void apply(const float* scale_and_shift, float slope) {
#pragma unroll
    for (int k = 0; k < IN / kBlock; ++k) {
      float scale[8], shift[8];
      load_coefficients<8>(scale_and_shift + k * kBlock, 1, scale);
      load_coefficients<8>(scale_and_shift + IN + k * kBlock, 0, shift);
#pragma unroll
      for (int row = 0; row < ROWS; ++row) {
        float values[8];
        unpack<T, 8>(blocks[row][k], values);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const float z = fmaf(values[i], scale[i], shift[i]);
          values[i] = z > 0 ? z : z * slope;
        }
        blocks[row][k] = pack<T, 8>(values);
      }
    }
  }
};

// The products of 16 * (ROWS / 2) voxels with one tap's 32 output channels.
template <class T, int IN, int ROWS>
__device__ __forceinline__ void multiply(const Voxels<T, IN, ROWS>& voxels, uint32_t weights,
                                         float (&sums)[ROWS / 2][4][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const uint32_t own = weights + (((lane >> 4) * 8 + (lane & 7)) * kRow<IN> + ((lane >> 3) & 1) * 8) * 2;
#pragma unroll
  for (int step = 0; step < IN / 16; ++step) {
    uint32_t b[2][4];
    load_matrices(b[0], own + step * 32);
    load_matrices(b[1], own + (16 * kRow<IN> + step * 16) * 2);
#pragma unroll
    for (int m = 0; m < ROWS / 2; ++m) {
      const uint4 &low = voxels.blocks[2 * m][step / 2], &high = voxels.blocks[2 * m + 1][step / 2];
      const LeftFactor a(low, high, step % 2 == 0);
#pragma unroll
      for (int j = 0; j < 4; ++j) multiply_add(sums[m][j], a.words, b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1], T{});
    }
  }
}

template <class T, int IN, int ROWS>
__global__ void __launch_bounds__(kWalkThreads, 2)
    upsample_kernel(const T* x, UpWalk walk, const T* weights, const T* bias, T* y) {
  extern __shared__ uint4 memory[];
  T* const shared = reinterpret_cast<T*>(memory);
  const int slices = 8 / walk.taps, first_tap = static_cast<int>(blockIdx.y) % slices * walk.taps;
  const int first_out = static_cast<int>(blockIdx.y) / slices * kBlock;
  fill_shared<T, IN>(walk, weights, bias, first_out, first_tap, shared);
  __syncthreads();
  const auto* const floats = reinterpret_cast<const float*>(shared + walk.taps * kBlock * kRow<IN>);
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32, q = lane % 4;
  const int count = walk.z * walk.y * walk.x;
  const int64_t sample = blockIdx.z;
  for (int tile = static_cast<int>(blockIdx.x); tile < walk.tiles; tile += static_cast<int>(gridDim.x)) {
    const int first = (tile * kWarps + warp) * ROWS * 8 + lane / 4;
    bool exists[ROWS];
    T* to[ROWS];
#pragma unroll
    for (int row = 0; row < ROWS; ++row) {
      const int voxel = first + row * 8, line = voxel / walk.x, plane = line / walk.y;
      exists[row] = voxel < count;
      const int64_t place = ((sample * walk.z + plane) * 2 * walk.y + line % walk.y) * 4 * walk.x + voxel % walk.x * 2;
      to[row] = y + place * walk.out + first_out + q * 8;
    }
    Voxels<T, IN, ROWS> voxels;
    voxels.fill(x + (sample * count + first) * IN + q * 8, exists);
    voxels.apply(floats + q * 8, walk.slope);
    for (int tap = 0; tap < walk.taps; ++tap) {
      float sums[ROWS / 2][4][4];
#pragma unroll
      for (int m = 0; m < ROWS / 2; ++m) {
#pragma unroll
        for (int i = 0; i < 16; ++i) sums[m][i / 4][i % 4] = floats[2 * IN + q * 8 + i / 4 * 2 + i % 2];
      }
      multiply<T, IN, ROWS>(voxels, address + tap * kBlock * kRow<IN> * 2, sums);
      const int at = first_tap + tap;
      const int64_t offset = ((at / 4 * 2 * walk.y + at / 2 % 2) * 2 * int64_t{walk.x} + at % 2) * walk.out;
#pragma unroll
      for (int row = 0; row < ROWS; ++row) {
        const auto& own = sums[row / 2];
        const int e = row % 2 * 2;
        const float values[8] = {own[0][e], own[0][e + 1], own[1][e], own[1][e + 1],
                                 own[2][e], own[2][e + 1], own[3][e], own[3][e + 1]};
        if (exists[row]) store<T, 8>(to[row] + offset, pack<T, 8>(values));
      }
    }
  }
}

template <class T, int IN>
void launch(const Upsample& layer, UpWalk walk, T* y, Stream stream) {
  constexpr int kRows = IN <= 64 ? 4 : 2;  // voxels of a thread: as many as leave registers for the sums
  constexpr int kTile = kWarps * kRows * 8;
  constexpr size_t kMostBytes = 72 * 1024;  // two blocks on a multiprocessor, and one on any GPU from Ampere on
  const auto bytes = [&] { return walk.taps * kBlock * kRow<IN> * sizeof(T) + (2 * IN + kBlock) * sizeof(float); };
  while (bytes() > kMostBytes) walk.taps /= 2;
  const int slices = walk.out / kBlock * (8 / walk.taps), n = static_cast<int>(layer.shape.n);
  walk.tiles = static_cast<int>((layer.shape.voxels() + kTile - 1) / kTile);
  const int blocks = std::clamp(2 * multiprocessors() / (slices * n), 1, walk.tiles);
  const auto kernel = upsample_kernel<T, IN, kRows>;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes())),
        "shared memory of upsample_forward");
  const dim3 grid{static_cast<unsigned>(blocks), static_cast<unsigned>(slices), static_cast<unsigned>(n)};
  kernel<<<grid, kWalkThreads, bytes(), stream>>>(
      static_cast<const T*>(layer.x), walk, static_cast<const T*>(layer.weights), static_cast<const T*>(layer.bias), y);
}

template <class T>
void launch_for(const Upsample& layer, const UpWalk& walk, T* y, Stream stream) {
  switch (layer.shape.c) {
    case 32:
      return launch<T, 32>(layer, walk, y, stream);
    case 64:
      return launch<T, 64>(layer, walk, y, stream);
    case 128:
      return launch<T, 128>(layer, walk, y, stream);
    case 256:
      return launch<T, 256>(layer, walk, y, stream);
    default:
      return launch<T, 320>(layer, walk, y, stream);
  }
}

}  // namespace

bool upsample_available(const Upsample& layer) {
  const Shape5& s = layer.shape;
  const bool channels = s.c == 32 || s.c == 64 || s.c == 128 || s.c == 256 || s.c == 320;
  return layer.type != Scalar::kFloat32 && channels && layer.out >= 32 && layer.out <= 512 && layer.out % 32 == 0 &&
         s.voxels() < (int64_t{1} << 30) && s.n < 65536 && aligned(layer.x) && aligned(layer.weights);
}

void upsample_forward(const Upsample& layer, void* y, Stream stream) {
  VOX_ASSERT(upsample_available(layer) && aligned(y));
  if (layer.shape.count() == 0) return;
  UpWalk walk;
  walk.z = static_cast<int>(layer.shape.z), walk.y = static_cast<int>(layer.shape.y);
  walk.x = static_cast<int>(layer.shape.x), walk.out = static_cast<int>(layer.out);
  walk.channels_last = layer.channels_last;
  walk.scale = layer.scale, walk.shift = layer.shift, walk.slope = layer.slope;
  if (layer.type == Scalar::kBFloat16)
    launch_for(layer, walk, static_cast<__nv_bfloat16*>(y), stream);
  else
    launch_for(layer, walk, static_cast<__half*>(y), stream);
  check_launch("upsample_forward");
}

}  // namespace vox::cuda
