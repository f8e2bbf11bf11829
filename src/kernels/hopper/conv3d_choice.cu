// Which convolutions are worth our kernels. cuDNN's part of the tensor cores' rate is from measurements on an H200 (2 x
// 128^3 and 2 x 64^3, cuDNN 9.19, benchmark mode, against 787 TFLOP/s of a large matrix product); ours follows from how
// many voxels of the tiles lie inside of the volume and how evenly the pieces fill the GPU.
#include "kernels/hopper/tiling.cuh"

namespace vox::cuda {
namespace {

struct Rate {
  int64_t in, out;
  double forward, weight_gradient;
};
constexpr Rate kCudnn[] = {{32, 32, 0.31, 0.21}, {64, 32, 0.34, 0.29}, {32, 64, 0.61, 0.27}, {64, 64, 0.68, 0.60}};
constexpr double kMargin = 1.05;
constexpr double kWeightGradient = 0.75;  // of the slots that the products have 27 of 30 are useful; and the prologue

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

}  // namespace

bool conv3d_available() {
  int device = 0, major = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return false;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "compute capability");
  return major == 9;
}

bool conv3d_forward_wins(const Conv3d& conv) {
  const Rate* cudnn = cudnn_rate(conv);
  return cudnn != nullptr && has_kernel(conv) && conv3d_forward_use(conv) > kMargin * cudnn->forward;
}

bool conv3d_weight_gradient_wins(const Conv3d& conv) {
  const Rate* cudnn = cudnn_rate(conv);
  return cudnn != nullptr && has_kernel(conv) && conv.output[1].channels == 0 &&
         kWeightGradient * conv3d_weight_gradient_use(conv) > kMargin * cudnn->weight_gradient;
}

}  // namespace vox::cuda
