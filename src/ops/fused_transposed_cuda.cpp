// Transposed convolutions as products of matrices, and those to very few channels by a kernel of their own
// (kernels/narrow_cuda.h).
#include <torch/torch.h>

#include "kernels/narrow_cuda.h"
#include "ops/columns.h"
#include "ops/device.h"
#include "ops/fused.h"

namespace vox::ops::fused {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct TransposedCall : torch::CustomClassHolder {
  cuda::Windows windows;
  std::vector<Input> inputs;  // without `activation`
  bool narrow = false;        // it has a kernel of its own
  bool learns[2] = {false, false};
};
using TransposedCallPtr = c10::intrusive_ptr<TransposedCall>;

cuda::Narrow narrow_of(const TransposedCall& call, const at::Tensor& factor, const at::Tensor& bias) {
  const cuda::Windows& windows = call.windows;
  cuda::Narrow layer{.type = scalar_of(call.inputs[0].raw),
                     .n = windows.volume.n,
                     .z = windows.z,
                     .y = windows.y,
                     .x = windows.x,
                     .result = windows.volume,
                     .weights = memory(factor),
                     .pitch = windows.pitch,
                     .bias = floats(bias)};
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const Input& input = call.inputs[i];
    layer.input[i] = {memory(input.raw), input.raw.size(1), floats(input.scale), floats(input.shift),
                      static_cast<float>(input.slope)};
  }
  for (int a = 0; a < 3; ++a) layer.kernel[a] = windows.kernel[a], layer.padding[a] = windows.padding[a];
  return layer;
}

// The windows here are those of the result: what a convolution gathers, a transposed one adds up.
struct TransposedByProduct : torch::autograd::Function<TransposedByProduct> {
  // The two activations take part for their gradients alone.
  static at::Tensor forward(AutogradContext* context, const at::Tensor&, const std::optional<at::Tensor>&,
                            const at::Tensor& weight, const std::optional<at::Tensor>& given_bias,
                            const TransposedCallPtr& call) {
    const at::Tensor bias = given_bias.value_or(at::Tensor());
    const at::Tensor factor = weight_matrix(weight.to(call->inputs[0].raw.scalar_type()), call->windows);
    const at::Tensor full_bias = bias.defined() ? bias.to(at::kFloat) : bias;
    context->save_for_backward({weight, bias});
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    if (call->narrow) return by_own_kernel(*call, factor, full_bias, weight.scalar_type());
    Summed summed{.columns = {}, .more = {}, .bias = full_bias};
    const bool few = call->windows.width() <= weight.size(0);  // these stay float32 until summed; of many, bytes count
    int64_t first = 0;
    for (const Input& input : call->inputs) {
      at::Tensor& columns = first == 0 ? summed.columns : summed.more;
      const at::Tensor part = factor.narrow(0, first, input.raw.size(1)), matrix = as_matrix(input.raw);
      columns = few ? at::mm(matrix, part, at::kFloat) : at::mm(matrix, part);
      first += input.raw.size(1);
    }
    return volume_of(summed, call->windows, weight.scalar_type());
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    variable_list result(5);
    if (!grads[0].defined()) return result;
    const auto capsule = context->saved_data["call"].toCapsule();
    auto& call = static_cast<TransposedCall&>(*capsule);
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &weight = saved[0], &bias = saved[1], dy = channels_last(grads[0]);
    const at::Tensor factor = weight_matrix(weight.to(call.inputs[0].raw.scalar_type()), call.windows);
    call.narrow ? add_by_own_kernel(call, factor, dy, weight, result) : add_products(call, factor, dy, weight, result);
    if (bias.defined()) result[3] = bias_gradient(dy, bias);
    call.inputs.clear();  // a node outlives its backward; what it read need not
    return result;
  }

 private:
  static at::Tensor by_own_kernel(const TransposedCall& call, const at::Tensor& factor, const at::Tensor& bias,
                                  at::ScalarType type) {
    const cuda::Shape5& s = call.windows.volume;
    const at::Tensor volume =
        at::empty({s.n, s.c, s.z, s.y, s.x}, factor.options().dtype(type), at::MemoryFormat::ChannelsLast3d);
    cuda::narrow_forward(narrow_of(call, factor, bias), memory(volume), scalar_of(volume), current_stream(volume));
    return volume;
  }
  static void add_by_own_kernel(const TransposedCall& call, const at::Tensor& factor, const at::Tensor& dy,
                                const at::Tensor& weight, variable_list& result) {
    const cuda::Narrow layer = narrow_of(call, factor, {});
    const at::Tensor space = workspace(cuda::narrow_workspace(layer), dy);
    const at::Tensor dw = at::empty({weight.size(0), call.windows.width()}, dy.options().dtype(at::kFloat));
    cuda::NarrowGradient gradient{.dy = memory(dy), .from = scalar_of(dy), .dw = floats(dw)};
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      if (call.learns[i]) result[i] = at::empty_like(call.inputs[i].raw);
      gradient.da[i] = memory(result[i]);
    }
    cuda::narrow_backward(layer, gradient, memory(space), current_stream(dy));
    result[2] = weight_from_matrix(dw, weight, call.windows.width());
  }
  static void add_products(const TransposedCall& call, const at::Tensor& factor, const at::Tensor& dy,
                           const at::Tensor& weight, variable_list& result) {
    const at::Tensor columns = columns_of(dy, call.windows, factor.scalar_type());
    std::vector<at::Tensor> dw;
    int64_t first = 0;
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      const at::Tensor& input = call.inputs[i].raw;
      const at::Tensor part = factor.narrow(0, first, input.size(1));
      if (call.learns[i]) result[i] = as_volume(at::mm(columns, part.t()), shape_of(input));
      if (call.inputs.size() > 1) dw.push_back(product_over_rows(as_matrix(input), columns));
      first += input.size(1);
    }
    if (!weight.requires_grad()) return;
    const int64_t width = call.windows.width();
    result[2] = dw.empty() ? weight_gradient(as_matrix(call.inputs[0].raw), columns, weight, width)
                           : weight_from_matrix(at::cat(dw, 0), weight, width);
  }
};

// `apart`: the parts of a concatenation for themselves, each of which has its own product.
std::vector<Input> parts_of(const Feature& input, bool apart, const std::function<Input(const Feature&)>& read) {
  const Feature::State& state = input.state();
  if (apart && !state.values.defined() && state.first) return {read(*state.first), read(*state.second)};
  return {read(input)};
}

Input applied_part(const Feature& feature) {
  const at::Tensor& values = feature.materialize();
  return {values, values.detach(), {}, {}, 1};
}

bool are_ours(const std::vector<Input>& inputs) {
  for (const Input& input : inputs) {
    if (!is_ours(input.raw) || input.raw.scalar_type() != inputs[0].raw.scalar_type()) return false;
  }
  return true;
}

// Of the result of a transposed convolution.
std::optional<cuda::Windows> raised_windows(const at::Tensor& input, const ConvLayer& layer) {
  const ConvGeometry& g = layer.geometry;
  const Extent3 padding = g.padding.value_or(Extent3{0, 0, 0}), count{input.size(2), input.size(3), input.size(4)};
  Extent3 size;
  for (int a = 0; a < 3; ++a) {
    size[a] = (count[a] - 1) * g.stride[a] - 2 * padding[a] + g.kernel[a] + g.output_padding[a];
    if (size[a] < 1) return std::nullopt;
  }
  const cuda::Windows windows =
      windows_over({input.size(0), size.z, size.y, size.x, layer.weight.size(1)}, count, g, padding);
  return cuda::columns_available(windows) ? std::optional(windows) : std::nullopt;
}

}  // namespace

std::optional<RawOutput> transposed_by_product(const Feature& input, const ConvLayer& layer, const Epilogue& epilogue,
                                               ProductUse use) {
  const at::Tensor &weight = layer.weight, &any = any_tensor(input);
  const bool same = weight.scalar_type() == any.scalar_type() || weight.scalar_type() == at::kFloat;
  if (!suits_products(input, layer) || !same) return std::nullopt;
  const auto windows = raised_windows(any, layer);
  if (!windows) return std::nullopt;
  const bool few = is_narrow(*windows) && windows->width() <= weight.size(0);
  const bool deep = weight.scalar_type() != at::kFloat && is_deep(*windows, weight.size(0));
  if (use == ProductUse::kWhereItWins && !few && !deep) return std::nullopt;
  const TransposedCallPtr call = c10::make_intrusive<TransposedCall>();
  call->windows = *windows;
  const Extent3 twos{2, 2, 2};
  if (few && layer.geometry.stride == twos) {
    call->inputs = parts_of(input, true, part_of);
    call->narrow = are_ours(call->inputs) && cuda::narrow_available(narrow_of(*call, {}, {}));
  }
  if (!call->narrow) call->inputs = parts_of(input, few, applied_part);
  if (!are_ours(call->inputs)) return std::nullopt;
  const at::Tensor first = std::exchange(call->inputs[0].activation, at::Tensor());
  std::optional<at::Tensor> second;
  if (call->inputs.size() > 1) second = std::exchange(call->inputs[1].activation, at::Tensor());
  call->learns[0] = first.requires_grad();
  call->learns[1] = second && second->requires_grad();
  const Biases biases = biases_of(layer, epilogue);
  const at::Tensor values = TransposedByProduct::apply(first, second, weight, biases.added, call);
  return RawOutput{weight.scalar_type() == at::kFloat ? values.contiguous() : values, {}, biases.folded};
}

}  // namespace vox::ops::fused
