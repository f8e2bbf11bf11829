// What a Feature holds, for the files of this folder that compute with it.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "ops/feature.h"

namespace vox::ops {

// A norm and a leaky ReLU that are still to be applied: max(z, slope * z) of z = raw * scale + shift.
struct Deferred {
  // Its place in autograd: right in shape and type, one element of memory. Consumers that read `raw` themselves hand
  // the gradient of the activation to it, where the gradients of all of them are summed before one norm backward.
  at::Tensor activation;
  at::Tensor raw;           // detached
  at::Tensor scale, shift;  // float32 [N, C]
  double slope = 1;         // 1: no activation
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

}  // namespace vox::ops
