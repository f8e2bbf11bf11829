#include "ops/volume_ops.h"

#include <torch/torch.h>

#include <array>
#include <type_traits>

#include "base/error.h"
#include "kernels/cldice_cuda.h"
#include "kernels/edt_cuda.h"
#include "ops/device.h"
#include "ops/parallel.h"

namespace vox::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Extent3 volume_extent(const at::Tensor& values) {
  VOX_ASSERT(values.dim() == 5);
  return {values.size(2), values.size(3), values.size(4)};
}

constexpr int64_t kWorthThreads = 1 << 19;  // voxels; less is done before torch's own threads have stopped to spin

// Calls work(volume) for each of the N * C volumes, side by side where they are large.
template <class Work>
void for_each_volume(const at::Tensor& values, const Work& work) {
  const int64_t volumes = values.size(0) * values.size(1);
  if (volume_extent(values).voxels() >= kWorthThreads) return for_each_piece(volumes, work);
  for (int64_t i = 0; i < volumes; ++i) work(i);
}

template <class Work>
void with_type_of(const at::Tensor& values, const Work& work) {
  if (values.scalar_type() == at::kDouble) return work(double{});
  VOX_ASSERT(values.scalar_type() == at::kFloat);
  work(float{});
}

// Calls work(of) for each volume of tensors like `values`; of(tensor) is where the volume begins there.
template <class Work>
void on_each_volume(const at::Tensor& values, const Work& work) {
  const int64_t voxels = volume_extent(values).voxels();
  with_type_of(values, [&](auto type) {
    for_each_volume(values, [&](int64_t i) {
      work([start = i * voxels](const at::Tensor& tensor) { return tensor.data_ptr<decltype(type)>() + start; });
    });
  });
}

bool has_kernel(const at::Tensor& values) {
  if (values.is_cpu()) return true;
  return cuda::kCompiledIn && values.is_cuda() && values.scalar_type() == at::kFloat;
}

VolumeBatch batch_of(const at::Tensor& values) {
  return {values.size(0) * values.size(1), volume_extent(values)};
}

// Calls work(first element, batch) for volumes of the batch that a kernel takes at once.
template <class Work>
void for_each_batch(const at::Tensor& values, const Work& work) {
  const VolumeBatch all = batch_of(values);
  if (values.numel() == 0) return;
  const int64_t most = most_volumes_cuda(all.extent);
  for (int64_t first = 0; first < all.volumes; first += most)
    work(first * all.extent.voxels(), VolumeBatch{std::min(most, all.volumes - first), all.extent});
}

at::Tensor workspace_like(const at::Tensor& values, int64_t floats) {
  return at::empty({floats}, values.options());
}

void skeleton_into(const at::Tensor& result, const at::Tensor& input, const SoftSkeletonOptions& options) {
  if (input.is_cuda()) {
    if constexpr (cuda::kCompiledIn) {
      const c10::DeviceGuard guard(input.device());
      const at::Tensor workspace = workspace_like(input, soft_skeleton_workspace(batch_of(input)));
      for_each_batch(input, [&](int64_t first, const VolumeBatch& batch) {
        soft_skeleton_cuda(result.data_ptr<float>() + first, input.data_ptr<float>() + first, batch, options,
                           workspace.data_ptr<float>(), current_stream(input));
      });
    }
    return;
  }
  const Extent3 extent = volume_extent(input);
  on_each_volume(input, [&](auto of) { soft_skeleton_cpu(of(result), of(input), extent, options); });
}

void skeleton_backward_into(const at::Tensor& result, const at::Tensor& outer, const at::Tensor& input,
                            const SoftSkeletonOptions& options) {
  if (input.is_cuda()) {
    if constexpr (cuda::kCompiledIn) {
      const c10::DeviceGuard guard(input.device());
      const at::Tensor workspace = workspace_like(input, soft_skeleton_backward_workspace(batch_of(input)));
      for_each_batch(input, [&](int64_t first, const VolumeBatch& batch) {
        soft_skeleton_backward_cuda(result.data_ptr<float>() + first, outer.data_ptr<float>() + first,
                                    input.data_ptr<float>() + first, batch, options, workspace.data_ptr<float>(),
                                    current_stream(input));
      });
    }
    return;
  }
  const Extent3 extent = volume_extent(input);
  on_each_volume(input,
                 [&](auto of) { soft_skeleton_backward_cpu(of(result), of(outer), of(input), extent, options); });
}

struct SoftSkeleton : torch::autograd::Function<SoftSkeleton> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& values, int64_t iterations, int64_t erosion) {
    const at::Tensor input = values.contiguous();
    context->save_for_backward({input});
    context->saved_data["iterations"] = iterations;
    context->saved_data["erosion"] = erosion;
    at::Tensor result = at::empty_like(input);
    skeleton_into(result, input, {static_cast<int>(iterations), static_cast<SoftErosion>(erosion)});
    return result;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const at::Tensor input = context->get_saved_variables()[0];
    const SoftSkeletonOptions options{static_cast<int>(context->saved_data["iterations"].toInt()),
                                      static_cast<SoftErosion>(context->saved_data["erosion"].toInt())};
    at::Tensor result = at::empty_like(input);
    skeleton_backward_into(result, grads[0].contiguous(), input, options);
    return {result, at::Tensor(), at::Tensor()};
  }
};

void erode_into(const at::Tensor& result, const at::Tensor& input, SoftErosion erosion) {
  if (input.is_cuda()) {
    if constexpr (cuda::kCompiledIn) {
      const c10::DeviceGuard guard(input.device());
      for_each_batch(input, [&](int64_t first, const VolumeBatch& batch) {
        soft_erode_cuda(result.data_ptr<float>() + first, input.data_ptr<float>() + first, batch, erosion,
                        current_stream(input));
      });
    }
    return;
  }
  const Extent3 extent = volume_extent(input);
  on_each_volume(input, [&](auto of) { soft_erode_cpu(of(result), of(input), extent, erosion); });
}

void erode_backward_into(const at::Tensor& result, const at::Tensor& outer, const at::Tensor& input,
                         SoftErosion erosion) {
  if (input.is_cuda()) {
    if constexpr (cuda::kCompiledIn) {
      const c10::DeviceGuard guard(input.device());
      for_each_batch(input, [&](int64_t first, const VolumeBatch& batch) {
        soft_erode_backward_cuda(result.data_ptr<float>() + first, outer.data_ptr<float>() + first,
                                 input.data_ptr<float>() + first, batch, erosion, Gradient::kSet,
                                 current_stream(input));
      });
    }
    return;
  }
  result.zero_();
  const Extent3 extent = volume_extent(input);
  on_each_volume(input, [&](auto of) {
    using T = std::remove_pointer_t<decltype(of(result))>;
    soft_erode_backward_cpu(of(result), of(outer), of(input), extent, erosion, T{1});
  });
}

struct SoftErode : torch::autograd::Function<SoftErode> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& values, int64_t erosion) {
    const at::Tensor input = values.contiguous();
    context->save_for_backward({input});
    context->saved_data["erosion"] = erosion;
    at::Tensor result = at::empty_like(input);
    erode_into(result, input, static_cast<SoftErosion>(erosion));
    return result;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const at::Tensor input = context->get_saved_variables()[0];
    at::Tensor result = at::empty_like(input);
    erode_backward_into(result, grads[0].contiguous(), input,
                        static_cast<SoftErosion>(context->saved_data["erosion"].toInt()));
    return {result, at::Tensor()};
  }
};

// The gradient is made beside the value, while what both need is there; backward only scales it.
struct ClDiceCall {
  at::Tensor target, valid;
  ClDiceOptions options;
  bool learns = false;
};
struct FusedClDice : torch::autograd::Function<FusedClDice> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& values, const ClDiceCall& call) {
    at::Tensor losses = at::empty({values.size(0), values.size(1)}, values.options());
    const at::Tensor grad = call.learns ? at::empty(values.sizes(), values.options()) : at::Tensor();
    if constexpr (cuda::kCompiledIn) {
      const c10::DeviceGuard guard(values.device());
      const at::Tensor input = values.contiguous(), truth = call.target.contiguous();
      const at::Tensor counted = call.valid.defined() ? call.valid.contiguous() : call.valid;
      const VolumeBatch batch = batch_of(input);
      const at::Tensor workspace = workspace_like(input, cldice_workspace(batch));
      cldice_cuda(losses.data_ptr<float>(), grad.defined() ? grad.data_ptr<float>() : nullptr,
                  {.values = input.data_ptr<float>(),
                   .logits = call.options.logits,
                   .target = truth.data_ptr<float>(),
                   .mask = call.options.mask,
                   .valid = counted.defined() ? counted.data_ptr<float>() : nullptr,
                   .channels = input.size(1),
                   .batch = batch,
                   .options = call.options.skeleton,
                   .smooth = call.options.smooth},
                  workspace.data_ptr<float>(), current_stream(input));
    }
    if (grad.defined()) context->save_for_backward({grad});
    return losses;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const at::Tensor grad = context->get_saved_variables()[0];
    return {grad * grads[0].view({grads[0].size(0), grads[0].size(1), 1, 1, 1}), at::Tensor()};
  }
};

at::Tensor max_pooled(const at::Tensor& values, const std::array<int64_t, 3>& kernel) {
  const std::array<int64_t, 3> padding{kernel[0] / 2, kernel[1] / 2, kernel[2] / 2};
  return at::max_pool3d(values, kernel, {1, 1, 1}, padding);
}

at::Tensor composed_erosion(const at::Tensor& values, SoftErosion erosion) {
  const at::Tensor negative = values.neg();
  if (erosion == SoftErosion::kCube) return max_pooled(negative, {3, 3, 3}).neg();
  return at::min(at::min(max_pooled(negative, {3, 1, 1}).neg(), max_pooled(negative, {1, 3, 1}).neg()),
                 max_pooled(negative, {1, 1, 3}).neg());
}

at::Tensor composed_skeleton(const at::Tensor& values, const SoftSkeletonOptions& options) {
  const bool cross = options.erosion == SoftErosion::kCross;
  at::Tensor level = values, skeleton;
  for (int k = 0; k < options.iterations + cross; ++k) {
    const at::Tensor eroded = composed_erosion(level, options.erosion);
    const at::Tensor ridge = at::relu(level - max_pooled(eroded, {3, 3, 3}));
    skeleton = !skeleton.defined() ? ridge : skeleton + at::relu(ridge - (cross ? skeleton * ridge : skeleton));
    level = eroded;
  }
  return skeleton.defined() ? skeleton : at::zeros_like(values);
}

}  // namespace

at::Tensor soft_skeleton(const at::Tensor& values, const SoftSkeletonOptions& options) {
  if (!has_kernel(values)) return composed_skeleton(values, options);
  return SoftSkeleton::apply(values, static_cast<int64_t>(options.iterations), static_cast<int64_t>(options.erosion));
}

at::Tensor soft_erode(const at::Tensor& values, SoftErosion erosion) {
  if (!has_kernel(values)) return composed_erosion(values, erosion);
  return SoftErode::apply(values, static_cast<int64_t>(erosion));
}

bool has_fused_cldice(const at::Tensor& values) {
  return values.is_cuda() && has_kernel(values) && values.numel() > 0;
}

at::Tensor fused_cldice(const at::Tensor& values, const at::Tensor& target, const at::Tensor& valid,
                        const ClDiceOptions& options) {
  VOX_ASSERT(has_fused_cldice(values) && target.sizes() == values.sizes());
  return FusedClDice::apply(values,
                            ClDiceCall{target, valid, options, at::GradMode::is_enabled() && values.requires_grad()});
}

namespace {

at::Tensor distance_on_gpu(const at::Tensor& mask, double limit, DistanceOf distance) {
  at::Tensor result = at::empty(mask.sizes(), mask.options().dtype(at::kFloat));
  if constexpr (cuda::kCompiledIn) {
    const c10::DeviceGuard guard(mask.device());
    const at::Tensor bytes = mask.contiguous();
    edt_cuda(result.data_ptr<float>(), reinterpret_cast<const uint8_t*>(bytes.data_ptr<bool>()),
             mask.size(0) * mask.size(1), volume_extent(mask), {.spacing = {}, .limit_mm = limit}, distance,
             current_stream(mask));
  }
  return result;
}

}  // namespace

at::Tensor distance_to(const at::Tensor& mask, double limit) {
  const at::NoGradGuard no_grad;
  if (cuda::kCompiledIn && mask.is_cuda()) return distance_on_gpu(mask.logical_not(), limit, DistanceOf::kInside);
  const at::Tensor outside = mask.logical_not().to(at::kCPU, at::kByte).contiguous();
  at::Tensor squared = at::empty(outside.sizes(), at::kFloat);
  const Extent3 extent = volume_extent(outside);
  for (int64_t i = 0; i < outside.size(0) * outside.size(1); ++i) {  // side by side they gain nothing
    const int64_t start = i * extent.voxels();
    edt_squared_cpu(squared.data_ptr<float>() + start, outside.data_ptr<uint8_t>() + start, extent,
                    {.spacing = {}, .limit_mm = limit});
  }
  return squared.sqrt_().to(mask.device());
}

at::Tensor signed_distance(const at::Tensor& mask, double limit) {
  const at::NoGradGuard no_grad;
  if (cuda::kCompiledIn && mask.is_cuda()) return distance_on_gpu(mask, limit, DistanceOf::kBoth);
  return distance_to(mask, limit) - distance_to(mask.logical_not(), limit);
}

}  // namespace vox::ops
