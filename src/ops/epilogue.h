// What follows a convolution: norm, dropout, a residual, an activation. Plain descriptions that borrow their tensors
// for the call; ops/feature.h applies them.
#pragma once

#include <cstdint>

namespace at {
class Tensor;
}

namespace vox::ops {

class Feature;

enum class NormKind { kNone, kInstance, kBatch, kGroup };
struct NormLayer {
  NormKind kind = NormKind::kNone;
  const at::Tensor* scale = nullptr;  // [channels]; both null: not affine
  const at::Tensor* shift = nullptr;
  double epsilon = 1e-5;
  int64_t groups = 1;  // of a group norm
  // Of a batch norm. In training the batch's statistics are used and the running ones moved towards them.
  const at::Tensor* running_mean = nullptr;
  const at::Tensor* running_variance = nullptr;
  double momentum = 0.1;
  bool training = false;
};

enum class Activation { kNone, kLeakyRelu, kRelu, kGelu, kPrelu, kElu, kSilu };
struct ActivationLayer {
  Activation kind = Activation::kNone;
  double negative_slope = 0.01;       // of the leaky ReLU
  const at::Tensor* slope = nullptr;  // of the PReLU: [1] or [channels]
};

// The mask is a pure function of (seed, sample, layer, channel or element), whatever the batch a sample is in.
struct Dropout {
  double rate = 0;  // 0: none
  uint64_t seed = 0;
  int64_t first_sample = 0;  // number of the first sample of the batch
  int layer = 0;
  bool elements = false;     // single elements instead of whole channels
  bool before_norm = false;  // nnU-Net's order; otherwise between norm and activation
};

struct Epilogue {  // in the order norm, dropout, residual, activation
  NormLayer norm;
  Dropout dropout;
  const Feature* residual = nullptr;  // added before the activation
  ActivationLayer activation;
};

// float32 on the CPU, 0 or 1 / (1 - rate): [samples, channels, 1, 1, 1], or the whole shape for single elements.
at::Tensor dropout_mask(const Dropout& dropout, const at::Tensor& like);

}  // namespace vox::ops
