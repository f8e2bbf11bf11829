#include "ops/feature_size.h"

#include "ops/feature_state.h"

namespace vox::ops {

Extent3 extent_of(const Feature& feature) {
  const Feature::State& state = feature.state();
  if (state.first) return extent_of(*state.first);
  const at::Tensor& values = state.values.defined() ? state.values : state.deferred->raw;
  return {values.size(2), values.size(3), values.size(4)};
}

}  // namespace vox::ops
