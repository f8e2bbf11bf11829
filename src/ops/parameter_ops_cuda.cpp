#include "ops/parameter_ops.h"

#include <torch/torch.h>

#include "base/error.h"
#include "ops/device.h"

namespace vox::ops {
namespace {

// Whether both have their elements in the same places; the stride of an axis of one element says nothing.
bool same_layout(const at::Tensor& a, const at::Tensor& b) {
  for (int64_t axis = 0; axis < a.dim(); ++axis)
    if (a.size(axis) > 1 && a.stride(axis) != b.stride(axis)) return false;
  return true;
}

bool has_kernel(const GradientMove& move) {
  const at::ScalarType type = move.from.scalar_type();
  return (type == at::kFloat || type == at::kBFloat16 || type == at::kHalf) && same_layout(move.from, move.to);
}

cuda::Scalar scalar_of(at::ScalarType type) {
  if (type == at::kFloat) return cuda::Scalar::kFloat32;
  return type == at::kBFloat16 ? cuda::Scalar::kBFloat16 : cuda::Scalar::kFloat16;
}

}  // namespace

void move_gradients(const std::vector<GradientMove>& moves) {
  std::vector<cuda::GradientMove> list;
  for (const GradientMove& move : moves) {
    if (has_kernel(move)) {
      list.push_back({move.to.data_ptr<float>(), move.from.const_data_ptr(), scalar_of(move.from.scalar_type()),
                      move.add, move.to.numel()});
    } else if (move.add) {
      move.to.add_(move.from);
    } else {
      move.to.copy_(move.from);
    }
  }
  if (!list.empty()) cuda::move_gradients(list, current_stream(moves.front().to));
}

void settle_statistics(const std::vector<SettledStatistic>& statistics, const at::Tensor& bad) {
  std::vector<cuda::SettledStatistic> list;
  for (const SettledStatistic& one : statistics) {
    VOX_ASSERT(one.value.is_contiguous() && one.master.is_contiguous());
    list.push_back({one.value.data_ptr<float>(), one.master.data_ptr<float>(), one.step, one.master.numel()});
  }
  if (!list.empty()) cuda::settle_statistics(list, bad.const_data_ptr<float>(), current_stream(bad));
}

}  // namespace vox::ops
