#include "ops/dropout_masks.h"

#include <torch/torch.h>

#include "base/error.h"
#include "ops/device.h"

namespace vox::ops {
namespace {

thread_local FixedMasks* recorded = nullptr;

// Through pinned memory, which torch hands out again only when the copy from it is done.
void send(const at::Tensor& mask, at::Tensor& values) {
  at::Tensor pinned = at::empty(mask.sizes(), values.options().device(at::kCPU).pinned_memory(true));
  pinned.copy_(mask);
  values.copy_(pinned, /*non_blocking=*/true);
}

}  // namespace

at::Tensor dropout_mask_on_device(const Dropout& dropout, const at::Tensor& like) {
  if (!like.is_cuda()) return dropout_mask(dropout, like).to(like.device(), like.scalar_type());
  const at::Tensor shape = at::empty(like.sizes(), at::TensorOptions(at::kFloat).device(at::kMeta));
  std::vector<int64_t> size = like.sizes().vec();
  if (!dropout.elements) std::fill(size.begin() + 2, size.end(), 1);
  if constexpr (cuda::kCompiledIn) {
    if (recorded) {
      const at::Tensor fixed = empty_outside_of_graphs(size, like);
      recorded->masks_.push_back({dropout, shape, fixed});
      return fixed;
    }
  }
  at::Tensor values = at::empty(size, like.options());
  send(dropout_mask(dropout, shape), values);
  return values;
}

FixedMasks::Recording::Recording(FixedMasks& masks) {
  VOX_ASSERT(recorded == nullptr);
  recorded = &masks;
}

FixedMasks::Recording::~Recording() {
  recorded = nullptr;
}

void FixedMasks::fill(int64_t first_sample) {
  for (Mask& mask : masks_) {
    mask.dropout.first_sample = first_sample;
    send(dropout_mask(mask.dropout, mask.shape), mask.values);
  }
}

}  // namespace vox::ops
