#include <torch/torch.h>

#include "kernels/interleave_cuda.h"
#include "kernels/smooth_cuda.h"
#include "ops/device.h"
#include "ops/fused.h"
#include "ops/fused_cuda.h"
#include "ops/kernel_choice.h"

namespace vox::ops::fused {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

cuda::Volumes volumes_of(const at::Tensor& values) {
  return {values.size(0) * values.size(1), values.size(2), values.size(3), values.size(4)};
}

at::Tensor smoothed(const at::Tensor& values, cuda::SmoothWay way) {
  const at::Tensor from = values.contiguous(), to = at::empty(from.sizes(), from.options());
  cuda::smooth(floats(from), floats(to), volumes_of(from), way, current_stream(from));
  return to;
}

struct Smooth : torch::autograd::Function<Smooth> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& values) {
    return smoothed(values, cuda::SmoothWay::kForward);
  }
  static variable_list backward(AutogradContext*, variable_list grads) {
    if (!grads[0].defined()) return {at::Tensor()};
    return {smoothed(grads[0], cuda::SmoothWay::kGradient)};
  }
};

}  // namespace

std::optional<at::Tensor> average_pool(const at::Tensor& values, const PoolWindow& window) {
  const Extent3 ones{1, 1, 1}, threes{3, 3, 3};
  if (window.kernel != threes || window.stride != ones || window.padding != ones) return std::nullopt;
  if (!values.is_cuda() || values.scalar_type() != at::kFloat || !own_convolutions_allowed() || values.numel() == 0 ||
      !cuda::smooth_available(volumes_of(values)))
    return std::nullopt;
  return Smooth::apply(values);
}

std::optional<at::Tensor> interleaved(const at::Tensor& image, at::ScalarType type) {
  const bool half = type == at::kBFloat16 || type == at::kHalf;
  if (!image.is_cuda() || image.scalar_type() != at::kFloat || !half || !image.is_contiguous() ||
      image.requires_grad() || !cuda::interleave_available(shape_of(image)))
    return std::nullopt;
  const at::Tensor result = at::empty(image.sizes(), image.options().dtype(type), at::MemoryFormat::ChannelsLast3d);
  cuda::interleave(floats(image), memory(result), scalar_of(result), shape_of(image), current_stream(image));
  return result;
}

}  // namespace vox::ops::fused
