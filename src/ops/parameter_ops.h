// What happens to all parameters of a network at once, on a GPU: one launch instead of one a tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "kernels/optimizer_cuda.h"

namespace vox::ops {

struct GradientMove {  // to = from, or to += from; `to` is float32, `from` any floating type in any layout
  at::Tensor to, from;
  bool add = false;
};
void move_gradients(const std::vector<GradientMove>& moves);

struct SettledStatistic {  // master = value + step, or value = master where `bad`
  at::Tensor value, master;
  float step = 0;
};
void settle_statistics(const std::vector<SettledStatistic>& statistics, const at::Tensor& bad);

}  // namespace vox::ops
