// The fused path of a GPU: raw convolution outputs in half precision, channels last, are what is stored; norm and
// activation are applied where the next layer loads them, or by one pass. Compiled with CUDA alone: callers stand
// behind `if constexpr (cuda::kCompiledIn)`.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "kernels/cuda.h"
#include "ops/feature.h"
#include "ops/feature_state.h"

namespace vox::ops::fused {

struct RawOutput {
  at::Tensor values;
  at::Tensor moments;  // partial sums [N, rows, 3, C] that the convolution left; undefined: none
  // Left out of the values because a batch norm in training subtracts it again: it moves the running mean alone.
  at::Tensor bias;
};

// Our own convolution where there is one and it is expected to win; absent: cuDNN's turn.
std::optional<RawOutput> convolve(const Feature& input, const ConvLayer& layer, const Epilogue& epilogue);
// Logits of a 1x1x1 convolution with float32 weights on half-precision activations.
std::optional<at::Tensor> head(const Feature& input, const ConvLayer& layer, const Epilogue& epilogue);

// The transposed convolution of kernel and stride 2, with its bias.
std::optional<at::Tensor> upsample(const Feature& input, const ConvLayer& layer);

// Convolutions as matrix products, for small volumes with many channels and for very few channels on one side.
enum class ProductUse { kWhereItWins, kWherePossible };
std::optional<RawOutput> convolve_by_product(const Feature& input, const ConvLayer& layer, const Epilogue& epilogue,
                                             ProductUse use = ProductUse::kWhereItWins);
std::optional<RawOutput> transposed_by_product(const Feature& input, const ConvLayer& layer, const Epilogue& epilogue,
                                               ProductUse use = ProductUse::kWhereItWins);

// Convolutions of stride 2 with even kernels and few channels at the higher resolution, as cuDNN's of stride 1 over
// blocks of 2x2x2 voxels whose voxels are channels.
std::optional<RawOutput> convolve_folded(const Feature& input, const ConvLayer& layer, const Epilogue& epilogue,
                                         ProductUse use = ProductUse::kWhereItWins);
std::optional<RawOutput> transposed_folded(const Feature& input, const ConvLayer& layer, const Epilogue& epilogue,
                                           ProductUse use = ProductUse::kWhereItWins);

// A float32 image in half precision with its channels last, in one pass.
std::optional<at::Tensor> interleaved(const at::Tensor& image, at::ScalarType type);

// The mean over 3x3x3 neighbours.
std::optional<at::Tensor> average_pool(const at::Tensor& values, const PoolWindow& window);

// Whether the bias may stay out of the convolution and go along as RawOutput::bias.
bool folds_bias(const ConvLayer& layer, const Epilogue& epilogue);

// Half precision on a GPU has its channels last; cuDNN leaves them first where its input has only one.
at::Tensor in_its_layout(const at::Tensor& raw);

bool normalizes(const at::Tensor& raw, const Epilogue& epilogue);
Feature normalize(const RawOutput& raw, const Epilogue& epilogue);
at::Tensor materialize(const Deferred& deferred);

}  // namespace vox::ops::fused
