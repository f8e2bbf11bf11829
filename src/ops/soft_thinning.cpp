#include "ops/soft_thinning.h"

#include <torch/torch.h>

#include "base/error.h"
#include "ops/parallel.h"

namespace vox::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Calls work(T{}, first voxel, extent, options) for each volume, side by side.
template <class Work>
void for_each_thinned_volume(const at::Tensor& values, SoftThinningOptions options, const Work& work) {
  VOX_ASSERT(values.dim() == 5 && (values.scalar_type() == at::kFloat || values.scalar_type() == at::kDouble));
  const Extent3 extent{values.size(2), values.size(3), values.size(4)};
  const int64_t channels = values.size(1);
  for_each_piece(values.size(0) * channels, [&](int64_t i) {
    SoftThinningOptions own = options;
    own.volume = i % channels;
    if (values.scalar_type() == at::kFloat)
      work(float{}, i * extent.voxels(), extent, own);
    else
      work(double{}, i * extent.voxels(), extent, own);
  });
}

struct SoftThinning : torch::autograd::Function<SoftThinning> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& values, const SoftThinningOptions& options) {
    const at::Tensor input = values.cpu().contiguous();
    const at::Tensor taken = at::empty(input.sizes(), at::kShort), result = at::empty_like(input);
    for_each_thinned_volume(input, options, [&](auto type, int64_t first, const Extent3& extent, const auto& own) {
      using T = decltype(type);
      soft_thinning_cpu(result.data_ptr<T>() + first, taken.data_ptr<int16_t>() + first,
                        input.const_data_ptr<T>() + first, extent, own);
    });
    context->save_for_backward({input, taken});
    context->saved_data["iterations"] = int64_t{options.iterations};
    context->saved_data["noise"] = options.noise;
    context->saved_data["seed"] = static_cast<int64_t>(options.seed);
    return result.to(values.device());
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &input = saved[0], &taken = saved[1];
    const SoftThinningOptions options{.iterations = static_cast<int>(context->saved_data["iterations"].toInt()),
                                      .noise = context->saved_data["noise"].toDouble(),
                                      .seed = static_cast<uint64_t>(context->saved_data["seed"].toInt()),
                                      .volume = 0};
    const at::Tensor outer = grads[0].cpu().contiguous(), result = at::empty_like(input);
    for_each_thinned_volume(input, options, [&](auto type, int64_t first, const Extent3& extent, const auto& own) {
      using T = decltype(type);
      soft_thinning_backward_cpu(result.data_ptr<T>() + first, outer.const_data_ptr<T>() + first,
                                 taken.const_data_ptr<int16_t>() + first, input.const_data_ptr<T>() + first, extent,
                                 own);
    });
    return {result.to(grads[0].device()), at::Tensor()};
  }
};

}  // namespace

at::Tensor soft_thinning(const at::Tensor& values, const SoftThinningOptions& options) {
  return SoftThinning::apply(values, options);
}

}  // namespace vox::ops
