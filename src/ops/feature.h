// What networks pass between layers: a raw convolution output (or two that stand for a concatenation) together with
// the norm and activation that are still to be applied. Only conv(), conv_transpose() and materialize() look inside,
// so that a device may apply them while it loads the input of the next convolution. The CPU applies them at once.
// A Feature is a handle: copies share one materialization, so that the gradients of two consumers (a skip) are summed
// before they go back through the norm once.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/shape.h"

namespace at {
class Tensor;
}

namespace vox::ops {

struct ConvGeometry {
  Extent3 kernel{3, 3, 3}, stride{1, 1, 1};
  Extent3 padding() const { return {(kernel.z - 1) / 2, (kernel.y - 1) / 2, (kernel.x - 1) / 2}; }
};

struct ConvLayer {           // borrows its tensors for the call
  const at::Tensor& weight;  // [out, in, kernel]; [in, out, kernel] for conv_transpose
  const at::Tensor& bias;    // [out]
  ConvGeometry geometry;
};

enum class NormKind { kNone, kInstance };
struct NormLayer {
  NormKind kind = NormKind::kNone;
  const at::Tensor* scale = nullptr;  // [channels]; both null: not affine
  const at::Tensor* shift = nullptr;
  double epsilon = 1e-5;
};

enum class Activation { kNone, kLeakyRelu, kRelu, kGelu };

// Whole channels kept with probability 1 - rate, scaled by its inverse. The mask is a pure function of (seed, sample,
// layer, channel), whatever the batch a sample is in.
struct Dropout {
  double rate = 0;  // 0: none
  uint64_t seed = 0;
  int64_t first_sample = 0;  // number of the first sample of the batch
  int layer = 0;
};

struct Epilogue {  // what follows a convolution, in this order
  NormLayer norm;
  Activation activation = Activation::kNone;
  double negative_slope = 0.01;  // of the leaky ReLU
  Dropout dropout;
};

class Feature {
 public:
  static Feature plain(const at::Tensor& values);                      // [N, C, Z, Y, X], nothing deferred
  static Feature concat(const Feature& first, const Feature& second);  // along the channels
  const at::Tensor& materialize() const;

 private:
  struct State;
  explicit Feature(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
  friend Feature conv(const Feature&, const ConvLayer&, const Epilogue&);
  friend Feature conv_transpose(const Feature&, const ConvLayer&, const Epilogue&);
};

// A bias directly before an instance norm is dropped: the norm subtracts it again, its gradient is exactly zero.
Feature conv(const Feature& input, const ConvLayer& layer, const Epilogue& epilogue = {});
Feature conv_transpose(const Feature& input, const ConvLayer& layer, const Epilogue& epilogue = {});

// [samples, channels, 1, 1, 1] of 0 or 1 / (1 - rate), float32 on the CPU.
at::Tensor dropout_mask(const Dropout& dropout, int64_t samples, int64_t channels);

}  // namespace vox::ops
