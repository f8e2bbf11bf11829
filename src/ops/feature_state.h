// What a Feature holds, for the files of this folder that compute with it.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>

#include "ops/feature.h"

namespace vox::ops {

// What the backward of a norm and that of the layer that reads its result have in common.
struct NormBackward {
  at::Tensor statistics;  // float32 [4, N, C]: mean, rstd, scale, shift
  int readers = 0;        // of the activation: their gradients are summed before the norm's backward
  // Of an only reader: the norm's sums [N, rows, 2, C], left by its data gradient, and where that gradient lies.
  at::Tensor sums{};
  const void* gradient = nullptr;
};

// A norm and a leaky ReLU that are still to be applied: max(z, slope * z) of z = raw * scale + shift.
struct Deferred {
  // Its place in autograd: right in shape and type, one element of memory. Consumers that read `raw` themselves hand
  // the gradient of the activation to it, where the gradients of all of them are summed before one norm backward.
  at::Tensor activation;
  at::Tensor raw;           // detached
  at::Tensor scale, shift;  // float32 [N, C]
  double slope = 1;         // 1: no activation
  std::shared_ptr<NormBackward> norm{};
};

struct Feature::State {
  at::Tensor values;                     // undefined while one of the others stands for it
  at::Tensor source;                     // of an image: what `values` was converted from; undefined: nothing
  std::optional<Deferred> deferred;      // kept when materialized: other consumers go on reading the raw output
  std::optional<Feature> first, second;  // a concatenation
  // On the meta device, for a trace: a GPU would leave norm and activation to whoever reads it, and has applied them
  // for one reader already.
  bool waits = false;
  mutable bool applied = false;
  // Likewise: these values count as kept, though a gradient needs them only where somebody reads them.
  bool counted = false;
  mutable bool read = false;
};

// An image or the weights that read it, filled up to so many channels, which then lie last.
at::Tensor with_channels_of_zeros(const at::Tensor& few, int64_t channels);

}  // namespace vox::ops
