#include "kernels/head_cuda.h"

#include "kernels/channels_cuda.cuh"
#include "kernels/row_sums.cuh"

namespace vox::cuda {
namespace {

constexpr int kWide = 8, kVoxels = 4;  // channels (16 bytes) and neighbouring voxels of a thread
constexpr int kTogether = 2;           // of them, how many take the weights from shared memory at once in the backward

struct HeadWalk {
  int64_t voxels = 0;  // of one sample
  int in = 0, out = 0;
  int chunk = 0;      // voxels of a block
  int lanes = 1;      // forward: threads that share a voxel
  bool quads = true;  // four logits of a class are 16 aligned bytes
  float slope = 1;
  const float *scale = nullptr, *shift = nullptr, *weights = nullptr;
};

// What the input waits for, of W channels.
struct Waiting {
  float scale[kWide], shift[kWide], slope;

  __device__ __forceinline__ void apply(float (&values)[kWide]) const {
#pragma unroll
    for (int i = 0; i < kWide; ++i) {
      const float z = fmaf(values[i], scale[i], shift[i]);
      values[i] = z > 0 ? z : z * slope;
    }
  }
};

__device__ __forceinline__ void load_logits(const float* from, int inside, bool quads, float (&values)[kVoxels]) {
  if (quads) {
    const float4 four = *reinterpret_cast<const float4*>(from);
    values[0] = four.x, values[1] = four.y, values[2] = four.z, values[3] = four.w;
    return;
  }
#pragma unroll
  for (int u = 0; u < kVoxels; ++u) values[u] = u < inside ? from[u] : 0;
}

// Weights [CLASSES][in] with zeros for classes that are not there; then, for the forward, scale and shift [in].
template <int CLASSES>
__device__ void fill_weights(const HeadWalk& walk, float* weights) {
  for (int i = static_cast<int>(threadIdx.x); i < CLASSES * walk.in; i += kWalkThreads)
    weights[i] = i < walk.out * walk.in ? walk.weights[i] : 0;
}

__device__ void fill_waiting(const HeadWalk& walk, float* waiting) {
  const int64_t own = int64_t{blockIdx.z} * walk.in;
  for (int i = static_cast<int>(threadIdx.x); i < walk.in; i += kWalkThreads) {
    waiting[i] = walk.scale ? walk.scale[own + i] : 1;
    waiting[walk.in + i] = walk.shift ? walk.shift[own + i] : 0;
  }
}

// Where a thread's logits go: class k of its four voxels at logits + k * voxels.
struct LogitPlace {
  float* logits;
  const float* bias;
  int64_t voxels;
  int out, inside;
  bool quads;
};

// The COUNT values from `first` on of [class][voxel].
template <int COUNT>
__device__ __forceinline__ void store_logits(const LogitPlace& to, int first, const float* sums) {
  constexpr int kPiece = COUNT < kVoxels ? COUNT : kVoxels;
#pragma unroll
  for (int i = 0; i < COUNT; i += kPiece) {
    const int k = (first + i) / kVoxels, u = (first + i) % kVoxels;
    if (k >= to.out || to.inside <= u) return;
    const float bias = to.bias ? to.bias[k] : 0;
    float* const at = to.logits + k * to.voxels + u;
    if constexpr (kPiece == 4) {
      if (to.quads) {
        *reinterpret_cast<float4*>(at) = {sums[i] + bias, sums[i + 1] + bias, sums[i + 2] + bias, sums[i + 3] + bias};
        continue;
      }
    } else if constexpr (kPiece == 2) {
      if (to.quads) {
        *reinterpret_cast<float2*>(at) = {sums[i] + bias, sums[i + 1] + bias};
        continue;
      }
    }
#pragma unroll
    for (int j = 0; j < kPiece; ++j) {
      if (u + j < to.inside) at[j] = sums[i + j] + bias;
    }
  }
}

// Adds the sums of `lanes` threads. At each step a thread hands half of its sums to the one `apart` from it and keeps
// the other half, so that in the end each has its share to store.
template <int COUNT>
__device__ __forceinline__ void add_and_store(const LogitPlace& to, int first, float* sums, int lane, int lanes,
                                              int apart) {
  if constexpr (COUNT == 1) {
    const int owners = apart;
    for (; apart < lanes; apart *= 2) sums[0] += __shfl_xor_sync(0xffffffffu, sums[0], apart);
    if (lane < owners) store_logits<1>(to, first, sums);
  } else {
    if (apart >= lanes) return store_logits<COUNT>(to, first, sums);
    const bool upper = lane & apart;
#pragma unroll
    for (int i = 0; i < COUNT / 2; ++i) {
      const float kept = upper ? sums[i + COUNT / 2] : sums[i], given = upper ? sums[i] : sums[i + COUNT / 2];
      sums[i] = kept + __shfl_xor_sync(0xffffffffu, given, apart);
    }
    add_and_store<COUNT / 2>(to, upper ? first + COUNT / 2 : first, sums, lane, lanes, apart * 2);
  }
}

// Adds what 8 channels of four voxels contribute to the logits. `weights` and `waiting` are in shared memory.
template <class T, int CLASSES>
__device__ __forceinline__ void add_channels(const Raw<T, kWide> (&raw)[kVoxels], const HeadWalk& walk,
                                             const float* weights, const float* waiting,
                                             float (&sums)[CLASSES * kVoxels]) {
  Waiting norm;
  load_coefficients<kWide>(waiting, 1, norm.scale);
  load_coefficients<kWide>(waiting + walk.in, 0, norm.shift);
  norm.slope = walk.slope;
  float values[kVoxels][kWide];
#pragma unroll
  for (int u = 0; u < kVoxels; ++u) {
    unpack<T, kWide>(raw[u], values[u]);
    norm.apply(values[u]);
  }
#pragma unroll
  for (int k = 0; k < CLASSES; ++k) {
    float weight[kWide];
    load_coefficients<kWide>(weights + k * walk.in, 0, weight);
#pragma unroll
    for (int u = 0; u < kVoxels; ++u) {
#pragma unroll
      for (int i = 0; i < kWide; ++i) sums[k * kVoxels + u] = fmaf(values[u][i], weight[i], sums[k * kVoxels + u]);
    }
  }
}

// `lanes` threads share four voxels, each with every lanes-th group of 8 channels; then they add what they have.
template <class T, int CLASSES>
__global__ void __launch_bounds__(kWalkThreads, CLASSES > 4 ? 2 : 3)
    head_forward_kernel(const T* x, HeadWalk walk, const float* bias, float* logits) {
  extern __shared__ float4 memory[];
  float* const weights = reinterpret_cast<float*>(memory);
  float* const waiting = weights + CLASSES * walk.in;
  fill_weights<CLASSES>(walk, weights);
  fill_waiting(walk, waiting);
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % walk.lanes, place = static_cast<int>(threadIdx.x) / walk.lanes;
  const int64_t begin = int64_t{blockIdx.x} * walk.chunk, sample = blockIdx.z;
  const int64_t end = begin + walk.chunk < walk.voxels ? begin + walk.chunk : walk.voxels;
  const int pass = kWalkThreads / walk.lanes * kVoxels;
  for (int64_t base = begin; base < end; base += pass) {  // all threads together, because they shuffle
    const int64_t voxel = base + place * kVoxels;
    const int inside = static_cast<int>(end - voxel < kVoxels ? end - voxel : kVoxels);
    const T* const from = x + (sample * walk.voxels + voxel) * walk.in;
    float sums[CLASSES * kVoxels] = {};
    for (int channel = lane * kWide; channel < walk.in; channel += walk.lanes * kWide) {
      Raw<T, kWide> raw[kVoxels] = {};
#pragma unroll
      for (int u = 0; u < kVoxels; ++u) {
        if (u < inside) raw[u] = load<T, kWide>(from + u * walk.in + channel);
      }
      add_channels<T, CLASSES>(raw, walk, weights + channel, waiting + channel, sums);
    }
    const LogitPlace to{
        logits + sample * walk.out * walk.voxels + voxel, bias, walk.voxels, walk.out, inside, walk.quads};
    add_and_store<CLASSES * kVoxels>(to, 0, sums, lane, walk.lanes, 1);
  }
}

template <int CLASSES>
constexpr int kTermsAtOnce = CLASSES < 4 ? CLASSES : 4;  // as many as fit into shared memory

// A row of partial sums: [out][in] of the weights, then [out] of the bias.
template <int CLASSES>
__device__ void write_sums(const HeadWalk& walk, float (&dw)[CLASSES][kWide], float (&dbias)[CLASSES][1], float* row) {
  constexpr int kTerms = kTermsAtOnce<CLASSES>;
  __shared__ float shared[kWalkThreads * kTerms * kWide];
  Walk threads;
  threads.channels = walk.in;
  threads.tile = walk.in / kWide;
  threads.lanes = kWalkThreads / threads.tile;
#pragma unroll
  for (int first = 0; first < CLASSES; first += kTerms) {
    float some[kTerms][kWide];
#pragma unroll
    for (int k = 0; k < kTerms; ++k) {
#pragma unroll
      for (int i = 0; i < kWide; ++i) some[k][i] = dw[first + k][i];
    }
    sum_over_lanes<kWide, kTerms>(threads, some, shared, [&](int channel, const float(&totals)[kTerms]) {
#pragma unroll
      for (int k = 0; k < kTerms; ++k) {
        if (first + k < walk.out) row[(first + k) * walk.in + channel] = totals[k];
      }
    });
    __syncthreads();
  }
  sum_over_lanes<1, CLASSES>(threads, dbias, shared, [&](int group, const float(&totals)[CLASSES]) {
    if (group != 0) return;  // the groups of 8 channels saw the same logits
#pragma unroll
    for (int k = 0; k < CLASSES; ++k) {
      if (k < walk.out) row[walk.out * walk.in + k] = totals[k];
    }
  });
}

template <class T, int CLASSES>
__global__ void __launch_bounds__(kWalkThreads, CLASSES > 4 ? 1 : 2)
    head_backward_kernel(const T* x, HeadWalk walk, const float* dlogits, T* da, float* partials) {
  extern __shared__ float4 memory[];
  float* const weights = reinterpret_cast<float*>(memory);
  fill_weights<CLASSES>(walk, weights);
  __syncthreads();
  const int groups = walk.in / kWide, lanes = kWalkThreads / groups;
  const int channel = static_cast<int>(threadIdx.x) % groups * kWide, place = static_cast<int>(threadIdx.x) / groups;
  const int64_t begin = int64_t{blockIdx.x} * walk.chunk, sample = blockIdx.z, own = sample * walk.in + channel;
  const int64_t end = place >= lanes ? begin : begin + walk.chunk < walk.voxels ? begin + walk.chunk : walk.voxels;
  Waiting norm;
  load_coefficients<kWide>(walk.scale ? walk.scale + own : nullptr, 1, norm.scale);
  load_coefficients<kWide>(walk.shift ? walk.shift + own : nullptr, 0, norm.shift);
  norm.slope = walk.slope;
  float dw[CLASSES][kWide] = {}, dbias[CLASSES][1] = {};
  for (int64_t voxel = begin + place * kVoxels; voxel < end; voxel += lanes * kVoxels) {
    const int inside = static_cast<int>(end - voxel < kVoxels ? end - voxel : kVoxels);
    const int64_t at = (sample * walk.voxels + voxel) * walk.in + channel;
    Raw<T, kWide> raw[kVoxels] = {};
#pragma unroll
    for (int u = 0; u < kVoxels; ++u) {
      if (u < inside) raw[u] = load<T, kWide>(x + at + u * walk.in);
    }
    float d[CLASSES][kVoxels] = {};
#pragma unroll
    for (int k = 0; k < CLASSES; ++k) {
      if (k < walk.out) load_logits(dlogits + (sample * walk.out + k) * walk.voxels + voxel, inside, walk.quads, d[k]);
      dbias[k][0] += (d[k][0] + d[k][1]) + (d[k][2] + d[k][3]);
    }
#pragma unroll
    for (int u = 0; u < kVoxels; u += kTogether) {
      float values[kTogether][kWide], back[kTogether][kWide] = {};
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
        unpack<T, kWide>(raw[u + j], values[j]);
        norm.apply(values[j]);
      }
#pragma unroll
      for (int k = 0; k < CLASSES; ++k) {
        float weight[kWide];
        load_coefficients<kWide>(weights + k * walk.in + channel, 0, weight);
#pragma unroll
        for (int j = 0; j < kTogether; ++j) {
#pragma unroll
          for (int i = 0; i < kWide; ++i) {
            dw[k][i] = fmaf(d[k][u + j], values[j][i], dw[k][i]);
            back[j][i] = fmaf(d[k][u + j], weight[i], back[j][i]);
          }
        }
      }
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
        if (da && u + j < inside) store<T, kWide>(da + at + (u + j) * walk.in, pack<T, kWide>(back[j]));
      }
    }
  }
  const int64_t row = sample * gridDim.x + blockIdx.x;
  write_sums<CLASSES>(walk, dw, dbias, partials + row * walk.out * (walk.in + 1));
}

__global__ void __launch_bounds__(kFinishThreads, 1)
    finish_head_kernel(const float* partials, int64_t rows, int weights, int width, float* dw, float* dbias) {
  __shared__ double totals[1][kColumns];
  const int first = static_cast<int>(blockIdx.x) * kColumns, own = first + static_cast<int>(threadIdx.x);
  sum_rows<1>(partials, 0, rows, first, width, totals);
  if (threadIdx.x >= kColumns || own >= width) return;
  const auto total = static_cast<float>(totals[0][threadIdx.x]);
  if (own < weights) {
    if (dw) dw[own] = total;
  } else if (dbias) {
    dbias[own - weights] = total;
  }
}

int rounded_up(int64_t value, int64_t unit) {
  return static_cast<int>((value + unit - 1) / unit * unit);
}

HeadWalk walk_of(const Head& head, const float* logits) {
  VOX_ASSERT(head_available(head));
  HeadWalk walk;
  walk.voxels = head.shape.voxels();
  walk.in = static_cast<int>(head.shape.c);
  walk.out = static_cast<int>(head.out);
  const int groups = walk.in / kWide;
  walk.lanes = std::min(groups & -groups, 32);  // the largest power of two that divides them
  walk.quads = walk.voxels % kVoxels == 0 && aligned(logits);
  walk.slope = head.slope;
  walk.scale = head.scale, walk.shift = head.shift, walk.weights = head.weights;
  return walk;
}

int chunk_of_backward(const Head& head) {
  return rounded_up(chunk_of_sums(head.shape), kVoxels);
}
int64_t rows_of_backward(const Head& head) {
  const int chunk = chunk_of_backward(head);
  return (head.shape.voxels() + chunk - 1) / chunk;
}

// Calls f(T{}, classes) with as few variants as lose little: more than four classes count as eight.
template <class F>
void dispatch_head(const Head& head, F&& f) {
  const auto with = [&](auto value) {
    if (head.out == 1) return f(value, std::integral_constant<int, 1>{});
    if (head.out == 2) return f(value, std::integral_constant<int, 2>{});
    if (head.out == 3) return f(value, std::integral_constant<int, 3>{});
    if (head.out == 4) return f(value, std::integral_constant<int, 4>{});
    return f(value, std::integral_constant<int, 8>{});
  };
  if (head.type == Scalar::kBFloat16) return with(__nv_bfloat16{});
  with(__half{});
}

}  // namespace

bool head_available(const Head& head) {
  const int64_t in = head.shape.c;
  return head.type != Scalar::kFloat32 && head.out >= 1 && head.out <= 8 && in >= 8 && in <= 512 && in % kWide == 0 &&
         head.shape.n < 65536 && aligned(head.x) && aligned(head.scale) && aligned(head.shift);
}

void head_forward(const Head& head, const float* bias, float* logits, Stream stream) {
  if (head.shape.count() == 0) return;
  HeadWalk walk = walk_of(head, logits);
  const int64_t pass = kWalkThreads / walk.lanes * kVoxels, passes = head.shape.n * (walk.voxels + pass - 1) / pass;
  walk.chunk = static_cast<int>(pass * std::clamp<int64_t>(passes / 1024, 1, 4));
  const dim3 grid{static_cast<unsigned>((walk.voxels + walk.chunk - 1) / walk.chunk), 1,
                  static_cast<unsigned>(head.shape.n)};
  dispatch_head(head, [&](auto value, auto classes) {
    using T = decltype(value);
    constexpr int kClasses = classes == 3 ? 4 : classes;  // sums are halved step by step
    const size_t bytes = (kClasses + 2) * walk.in * sizeof(float);
    head_forward_kernel<T, kClasses>
        <<<grid, kWalkThreads, bytes, stream>>>(static_cast<const T*>(head.x), walk, bias, logits);
  });
  check_launch("head_forward");
}

int64_t head_workspace(const Head& head) {
  const int64_t row = head.out * (head.shape.c + 1);
  return head.shape.n * rows_of_backward(head) * row * static_cast<int64_t>(sizeof(float));
}

void head_backward(const Head& head, const float* dlogits, void* da, float* dw, float* dbias, void* workspace,
                   Stream stream) {
  if (head.shape.count() == 0) return;
  VOX_ASSERT(aligned(da));
  HeadWalk walk = walk_of(head, dlogits);
  walk.chunk = chunk_of_backward(head);
  const int64_t rows = rows_of_backward(head);
  const dim3 grid{static_cast<unsigned>(rows), 1, static_cast<unsigned>(head.shape.n)};
  auto* const partials = static_cast<float*>(workspace);
  dispatch_head(head, [&](auto value, auto classes) {
    using T = decltype(value);
    head_backward_kernel<T, classes><<<grid, kWalkThreads, classes * walk.in * sizeof(float), stream>>>(
        static_cast<const T*>(head.x), walk, dlogits, static_cast<T*>(da), partials);
  });
  const int weights = walk.out * walk.in, width = weights + walk.out;
  if (dw || dbias)
    finish_head_kernel<<<static_cast<unsigned>((width + kColumns - 1) / kColumns), kFinishThreads, 0, stream>>>(
        partials, rows * head.shape.n, weights, width, dw, dbias);
  check_launch("head_backward");
}

}  // namespace vox::cuda
