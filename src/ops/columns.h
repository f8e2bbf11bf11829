// What the convolutions by matrix products share (kernels/columns_cuda.h).
#pragma once

#include "kernels/columns_cuda.h"
#include "ops/epilogue.h"
#include "ops/fused_cuda.h"

namespace vox::ops::fused {

at::Tensor as_matrix(const at::Tensor& volume);  // [voxels, channels], a view
at::Tensor as_volume(const at::Tensor& matrix, const cuda::Shape5& shape);
// [first axis, pitch]: a view of weights whose channels are last, but for a width that has to be filled up.
at::Tensor weight_matrix(const at::Tensor& weight, const cuda::Windows& windows);
at::Tensor weight_from_matrix(const at::Tensor& matrix, const at::Tensor& like, int64_t width);

at::Tensor columns_of(const Input& input, const cuda::Windows& windows, at::ScalarType type);
at::Tensor columns_of(const at::Tensor& volume, const cuda::Windows& windows, at::ScalarType type);
struct Summed {
  at::Tensor columns, more, bias;  // the last two may be undefined; the bias is float32
};
at::Tensor volume_of(const Summed& summed, const cuda::Windows& windows, at::ScalarType type);

// a^T b. Of very many rows and a small result, pieces of the rows fill the GPU; float32 sums of them, then.
at::Tensor product_over_rows(const at::Tensor& a, const at::Tensor& b);
// The gradient a^T b of a weight, undefined where it went to the place that its network offers.
at::Tensor weight_gradient(const at::Tensor& a, const at::Tensor& b, const at::Tensor& weight, int64_t width);
at::Tensor bias_gradient(const at::Tensor& dy, const at::Tensor& bias);

cuda::Windows windows_over(const cuda::Shape5& volume, const Extent3& count, const ConvGeometry& geometry,
                           const Extent3& padding);
// Whether the columns' matrix is small enough not to matter.
bool is_narrow(const cuda::Windows& windows);
bool is_deep(const cuda::Windows& windows, int64_t channels);  // ops/deep_product.h
// A feature as a layer reads it that applies norms itself: what is applied already is read so.
Input part_of(const Feature& feature);
// Whether products may take a layer at all.
bool suits_products(const Feature& input, const ConvLayer& layer);

struct Biases {
  std::optional<at::Tensor> added;
  at::Tensor folded;
};
Biases biases_of(const ConvLayer& layer, const Epilogue& epilogue);

}  // namespace vox::ops::fused
