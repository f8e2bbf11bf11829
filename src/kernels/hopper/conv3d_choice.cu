// Which convolutions are worth our kernels: the expected time of both, from measurements on an H200 with cuDNN 9.19 in
// benchmark mode (vox_cuda_test, Conv3dTiming). cuDNN's rate depends on the channels. Ours depends on how many voxels
// of the tiles lie inside of the volume and how evenly the pieces fill the GPU. An input that still waits for its norm,
// or that is two tensors, costs cuDNN a pass first.
#include "kernels/hopper/tiling.cuh"

namespace vox::cuda {
namespace {

constexpr double kFlopsPerMs = 787e9;  // of a large matrix product; rates are parts of this

struct Rate {
  int64_t in, out;
  double forward, weight_gradient;
};
constexpr Rate kCudnn[] = {{32, 32, 0.33, 0.23},  {64, 32, 0.34, 0.29},  {32, 64, 0.60, 0.27},  {64, 64, 0.67, 0.62},
                           {64, 128, 0.99, 0.89}, {128, 64, 0.64, 0.86}, {128, 128, 0.97, 0.89}};
constexpr double kCudnnMs = 0.012;     // of a call, however small
constexpr double kBytesPerMs = 4.0e9;  // of a pass that writes what cuDNN reads: the norm applied, tensors concatenated

struct OwnRate {
  double plain, with_prologue, ms_of_call;
};
constexpr OwnRate kForward{1.08, 0.83, 0.006}, kForwardOfPairs{0.90, 0.78, 0.006}, kWeightGradient{0.85, 0.78, 0.015};

const Rate* cudnn_rate(const Conv3d& conv) {
  for (const Rate& rate : kCudnn)
    if (rate.in == conv.in() && rate.out == conv.out()) return &rate;
  return nullptr;
}

bool has_kernel(const Conv3d& conv) {
  for (const ConvInput& input : conv.input)
    if (input.channels % 32 != 0 || (input.scale != nullptr && !(input.slope >= 0 && input.slope <= 1))) return false;
  for (const ConvOutput& output : conv.output)
    if (output.channels % 32 != 0) return false;
  return conv.input[0].channels > 0 && conv.output[0].channels > 0 && conv3d_available();
}

// `use`: the part of the products that counts.
ConvTimes expected(const Conv3d& conv, const OwnRate& own, double use, double cudnn) {
  const double voxels = double(conv.n * conv.z * conv.y * conv.x);
  const double flops = 54.0 * voxels * double(conv.in() * conv.out());
  const bool prologue = conv.input[0].scale != nullptr || conv.input[1].scale != nullptr;
  const double pass = prologue || conv.input[1].channels > 0 ? 4 * voxels * double(conv.in()) / kBytesPerMs : 0;
  const double own_ms = flops / (use * (prologue ? own.with_prologue : own.plain) * kFlopsPerMs) + own.ms_of_call;
  return {own_ms, flops / (cudnn * kFlopsPerMs) + kCudnnMs + pass};
}

}  // namespace

bool conv3d_available() {
  int device = 0, major = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return false;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "compute capability");
  return major == 9;
}

ConvTimes conv3d_forward_times(const Conv3d& conv) {
  const Rate* cudnn = cudnn_rate(conv);
  if (cudnn == nullptr || !has_kernel(conv)) return {};
  return expected(conv, conv.in() > 64 ? kForwardOfPairs : kForward, conv3d_forward_use(conv), cudnn->forward);
}

ConvTimes conv3d_weight_gradient_times(const Conv3d& conv) {
  const Rate* cudnn = cudnn_rate(conv);
  if (cudnn == nullptr || !has_kernel(conv) || conv.output[1].channels != 0) return {};
  return expected(conv, kWeightGradient, conv3d_weight_gradient_use(conv), cudnn->weight_gradient);
}

}  // namespace vox::cuda
