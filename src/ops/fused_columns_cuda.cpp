// Convolutions as products of matrices (kernels/columns_cuda.h), where cuDNN leaves most of the GPU idle: small volumes
// with many channels, whose weights are all there is to move, and kernels with so few channels on one side that their
// columns are no larger than the volume on the other.
#include <torch/torch.h>

#include "ops/columns.h"
#include "ops/deep_product.h"
#include "ops/device.h"
#include "ops/fused.h"
#include "ops/gradient_places.h"
#include "ops/kernel_choice.h"

namespace vox::ops::fused {
namespace {

constexpr int64_t kTogether = 8;  // elements that rows are multiples of, 16 bytes

Extent3 extent_of(const at::Tensor& volume) {
  return {volume.size(2), volume.size(3), volume.size(4)};
}

}  // namespace

at::Tensor as_matrix(const at::Tensor& volume) {
  return volume.permute({0, 2, 3, 4, 1}).reshape({-1, volume.size(1)});
}

at::Tensor as_volume(const at::Tensor& matrix, const cuda::Shape5& shape) {
  return matrix.reshape({shape.n, shape.z, shape.y, shape.x, shape.c}).permute({0, 4, 1, 2, 3});
}

at::Tensor weight_matrix(const at::Tensor& weight, const cuda::Windows& windows) {
  const at::Tensor matrix = weight.permute({0, 2, 3, 4, 1}).reshape({weight.size(0), windows.width()});
  if (windows.pitch == windows.width()) return matrix;
  return at::constant_pad_nd(matrix, {0, windows.pitch - windows.width()});
}

at::Tensor weight_from_matrix(const at::Tensor& matrix, const at::Tensor& like, int64_t width) {
  return matrix.narrow(1, 0, width)
      .reshape({like.size(0), like.size(2), like.size(3), like.size(4), like.size(1)})
      .permute({0, 4, 1, 2, 3});
}

at::Tensor product_over_rows(const at::Tensor& a, const at::Tensor& b) {
  constexpr int64_t kMostPieces = 256, kLeastRows = 1024;
  int64_t pieces = 1;
  const int64_t rows = a.size(0);
  while (pieces < kMostPieces && rows % (2 * pieces) == 0 && rows / (2 * pieces) >= kLeastRows) pieces *= 2;
  if (pieces == 1 || result_tiles(a.size(1), b.size(1)) > kFewTiles) return at::mm(a.t(), b);
  const at::Tensor left = a.reshape({pieces, -1, a.size(1)}), right = b.reshape({pieces, -1, b.size(1)});
  return at::bmm(left.transpose(1, 2), right, at::kFloat).sum(0);
}

at::Tensor weight_gradient(const at::Tensor& a, const at::Tensor& b, const at::Tensor& weight, int64_t width) {
  GradientPlaces::Place* const place = GradientPlaces::of(weight);
  const bool direct = place && b.size(1) == width && place->buffer.is_contiguous(at::MemoryFormat::ChannelsLast3d);
  if (!direct) return weight_from_matrix(product_over_rows(a, b), weight, width);
  at::Tensor matrix = place->buffer.permute({0, 2, 3, 4, 1}).reshape({weight.size(0), width});
  if (place->counts || place->written) {
    matrix.add_(at::mm(a.t(), b, at::kFloat));
  } else {
    at::mm_out(matrix, a.t(), b, at::kFloat);
  }
  place->written = true;
  return {};
}

at::Tensor columns_of(const Input& input, const cuda::Windows& windows, at::ScalarType type) {
  const at::Tensor columns = at::empty({windows.rows(), windows.pitch}, input.raw.options().dtype(type));
  cuda::gather_columns(windows,
                       {memory(input.raw), scalar_of(input.raw), floats(input.scale), floats(input.shift),
                        static_cast<float>(input.slope)},
                       memory(columns), scalar_of(columns), current_stream(input.raw));
  return columns;
}

at::Tensor columns_of(const at::Tensor& volume, const cuda::Windows& windows, at::ScalarType type) {
  return columns_of(Input{{}, volume, {}, {}, 1}, windows, type);
}

at::Tensor volume_of(const Summed& summed, const cuda::Windows& windows, at::ScalarType type) {
  const cuda::Shape5& s = windows.volume;
  const at::Tensor volume =
      at::empty({s.n, s.c, s.z, s.y, s.x}, summed.columns.options().dtype(type), at::MemoryFormat::ChannelsLast3d);
  cuda::sum_columns(windows,
                    {memory(summed.columns), memory(summed.more), scalar_of(summed.columns), floats(summed.bias)},
                    memory(volume), scalar_of(volume), current_stream(volume));
  return volume;
}

at::Tensor bias_gradient(const at::Tensor& dy, const at::Tensor& bias) {
  return at::sum(dy, {0, 2, 3, 4}, false, at::kFloat).to(bias.scalar_type());
}

cuda::Windows windows_over(const cuda::Shape5& volume, const Extent3& count, const ConvGeometry& geometry,
                           const Extent3& padding) {
  cuda::Windows windows{.volume = volume, .z = count.z, .y = count.y, .x = count.x};
  for (int a = 0; a < 3; ++a) {
    windows.kernel[a] = static_cast<int>(geometry.kernel[a]);
    windows.stride[a] = static_cast<int>(geometry.stride[a]);
    windows.padding[a] = static_cast<int>(padding[a]);
  }
  windows.pitch = (windows.width() + kTogether - 1) / kTogether * kTogether;
  return windows;
}

bool is_narrow(const cuda::Windows& windows) {
  constexpr int64_t kWidth = 64, kElements = int64_t{80} << 20;
  return windows.width() <= kWidth && windows.rows() * windows.pitch <= kElements;
}

bool is_deep(const cuda::Windows& windows, int64_t channels) {
  return is_deep_product(windows.rows(), windows.width(), channels);
}

Input part_of(const Feature& feature) {
  const Feature::State& state = feature.state();
  if (state.deferred && !state.values.defined()) return input_of(feature);
  const at::Tensor& values = feature.materialize();
  return {values, values.detach(), {}, {}, 1};
}

bool suits_products(const Feature& input, const ConvLayer& layer) {
  return any_tensor(input).is_cuda() && own_convolutions_allowed() && layer.geometry.groups == 1 &&
         layer.weight.is_contiguous(at::MemoryFormat::ChannelsLast3d);
}

Biases biases_of(const ConvLayer& layer, const Epilogue& epilogue) {
  const bool dropped = epilogue.norm.kind == NormKind::kInstance && !epilogue.dropout.before_norm;
  if (!layer.bias.defined() || dropped) return {};
  if (folds_bias(layer, epilogue)) return {{}, layer.bias};
  return {layer.bias, {}};
}

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct ProductCall : torch::CustomClassHolder {
  cuda::Windows windows;
  bool input_learns = false;
};
using ProductCallPtr = c10::intrusive_ptr<ProductCall>;

struct ConvByProduct : torch::autograd::Function<ConvByProduct> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, const ProductCallPtr& call) {
    const cuda::Windows& windows = call->windows;
    const at::Tensor columns = columns_of(x, windows, x.scalar_type()), factor = weight_matrix(weight, windows).t();
    context->save_for_backward({x, weight, bias.value_or(at::Tensor())});
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    // No view of the product: an activation may work in place.
    const at::Tensor result = at::empty({windows.volume.n, weight.size(0), windows.z, windows.y, windows.x},
                                        x.options(), at::MemoryFormat::ChannelsLast3d);
    at::Tensor matrix = as_matrix(result);
    bias ? at::addmm_out(matrix, *bias, columns, factor) : at::mm_out(matrix, columns, factor);
    return result;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    variable_list result(4);
    if (!grads[0].defined()) return result;
    const auto capsule = context->saved_data["call"].toCapsule();
    const auto& call = static_cast<const ProductCall&>(*capsule);
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &bias = saved[2];
    const at::Tensor dy = channels_last(grads[0]), dy_matrix = as_matrix(dy);
    if (call.input_learns) {
      const at::Tensor columns = at::mm(dy_matrix, weight_matrix(weight, call.windows));
      result[0] = volume_of({columns, {}, {}}, call.windows, x.scalar_type());
    }
    if (weight.requires_grad()) {
      const at::Tensor columns = columns_of(x, call.windows, x.scalar_type());
      result[1] = weight_gradient(dy_matrix, columns, weight, call.windows.width());
    }
    if (bias.defined()) result[2] = bias_gradient(dy, bias);
    return result;
  }
};

}  // namespace

std::optional<RawOutput> convolve_by_product(const Feature& input, const ConvLayer& layer, const Epilogue& epilogue,
                                             ProductUse use) {
  const ConvGeometry& g = layer.geometry;
  const at::Tensor &weight = layer.weight, &any = any_tensor(input);
  if (!suits_products(input, layer) || weight.scalar_type() != any.scalar_type() || weight.scalar_type() == at::kFloat)
    return std::nullopt;
  Extent3 padding = g.padding.value_or(Extent3{(g.kernel.z - 1) / 2, (g.kernel.y - 1) / 2, (g.kernel.x - 1) / 2});
  const Extent3 size = extent_of(any);
  Extent3 count;
  for (int a = 0; a < 3; ++a) {
    if (size[a] + 2 * padding[a] < g.kernel[a]) return std::nullopt;
    count[a] = (size[a] + 2 * padding[a] - g.kernel[a]) / g.stride[a] + 1;
  }
  const ProductCallPtr call = c10::make_intrusive<ProductCall>();
  call->windows = windows_over({any.size(0), size.z, size.y, size.x, weight.size(1)}, count, g, padding);
  const bool wins = g.kernel.voxels() > 1 && (is_narrow(call->windows) || is_deep(call->windows, weight.size(0)));
  if ((use == ProductUse::kWhereItWins && !wins) || !cuda::columns_available(call->windows)) return std::nullopt;
  const at::Tensor values = input.materialize();
  if (!is_ours(values)) return std::nullopt;
  call->input_learns = values.requires_grad();
  const Biases biases = biases_of(layer, epilogue);
  return RawOutput{ConvByProduct::apply(values, weight, biases.added, call), {}, biases.folded};
}

}  // namespace vox::ops::fused
