#include <utility>

#include "kernels/hopper/forward.cuh"

namespace vox::cuda {
namespace {

// One thread an element. Packed: [output block][input block][tap in the plane][tap along z, last first][32 outputs, in
// the order of an accumulator's columns][32 inputs], swizzled: the image that a block copies into shared memory.
__global__ void pack_kernel(const Bf16* __restrict__ weights, Bf16* __restrict__ packed, int in, int out, ConvWay way) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= int64_t{27} * in * out) return;
  const int k = static_cast<int>(i % 32), column = static_cast<int>(i / 32 % 32);
  const int third = static_cast<int>(i / 1024 % 3), in_plane = static_cast<int>(i / 3072 % 9);
  const int64_t block = i / 27648;
  const int from = static_cast<int>(block % (in / 32)) * 32 + k;
  const int to = static_cast<int>(block / (in / 32)) * 32 + channel_of_column(column);
  const int tap = (2 - third) * 9 + in_plane;
  const int64_t source =
      way == ConvWay::kForward ? (int64_t{to} * 27 + tap) * in + from : (int64_t{from} * 27 + (26 - tap)) * out + to;
  const uint32_t linear = (third * 32 + column) * 64 + 2 * k, swizzled = linear ^ (((linear >> 7) & 3) << 4);
  packed[(block * 9 + in_plane) * (kTapBytes / 2) + swizzled / 2] = weights[source];
}

}  // namespace

void conv3d_pack(const void* weights, void* packed, int64_t in, int64_t out, ConvWay way, Stream stream) {
  VOX_ASSERT(in % 32 == 0 && out % 32 == 0 && in * out < (int64_t{1} << 26));
  if (way == ConvWay::kGradient) std::swap(in, out);
  constexpr int kThreads = 256;
  const auto blocks = static_cast<unsigned>((27 * in * out + kThreads - 1) / kThreads);
  pack_kernel<<<blocks, kThreads, 0, stream>>>(static_cast<const Bf16*>(weights), static_cast<Bf16*>(packed),
                                               static_cast<int>(in), static_cast<int>(out), way);
  check_launch("conv3d_pack");
}

}  // namespace vox::cuda
