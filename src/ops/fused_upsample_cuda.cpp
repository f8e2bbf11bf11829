#include <torch/torch.h>

#include "kernels/norm_cuda.h"
#include "kernels/upsample_cuda.h"
#include "ops/device.h"
#include "ops/fused.h"
#include "ops/fused_cuda.h"
#include "ops/kernel_choice.h"
#include "ops/library_conv.h"

namespace vox::ops::fused {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct UpsampleCall : torch::CustomClassHolder {
  Input input;  // without `activation`
  bool input_learns = false;
};
using UpsampleCallPtr = c10::intrusive_ptr<UpsampleCall>;

// `weight` and `bias` as torch stores them by default: the kernel reads them so.
cuda::Upsample described(const Input& input, const at::Tensor& weight, const at::Tensor& bias) {
  return {.x = memory(input.raw),
          .type = scalar_of(input.raw),
          .shape = shape_of(input.raw),
          .out = weight.size(1),
          .weights = memory(weight),
          .bias = memory(bias),
          .scale = floats(input.scale),
          .shift = floats(input.shift),
          .slope = static_cast<float>(input.slope)};
}

at::Tensor activation_of(const Input& input) {
  if (!input.scale.defined()) return input.raw;
  return materialize({input.raw, input.raw, input.scale, input.shift, input.slope});
}

at::Tensor channel_sums(const at::Tensor& values, const at::Tensor& like) {
  const cuda::Shape5 shape = shape_of(values);
  const at::TensorOptions options = values.options().dtype(at::kFloat);
  const at::Tensor partials = at::empty({shape.n, cuda::moment_rows(shape), 3, shape.c}, options);
  const at::Tensor sums = at::empty({shape.c}, options);
  const cuda::Stream stream = current_stream(values);
  cuda::moments(memory(values), scalar_of(values), shape, floats(partials), stream);
  cuda::sums_from_moments(floats(partials), partials.size(1), shape, floats(sums), stream);
  return sums.to(like.scalar_type());
}

struct OwnUpsample : torch::autograd::Function<OwnUpsample> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& activation, const at::Tensor& weight,
                            const std::optional<at::Tensor>& given_bias, const UpsampleCallPtr& call) {
    const at::Tensor bias = given_bias.value_or(at::Tensor()), read = weight.contiguous();
    const at::Tensor result = at::empty(
        {activation.size(0), weight.size(1), 2 * activation.size(2), 2 * activation.size(3), 2 * activation.size(4)},
        call->input.raw.options(), at::MemoryFormat::ChannelsLast3d);
    cuda::upsample_forward(described(call->input, read, bias), memory(result), current_stream(result));
    context->save_for_backward({weight, bias});
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    return result;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    variable_list result(4);
    if (!grads[0].defined()) return result;
    const auto capsule = context->saved_data["call"].toCapsule();
    auto& call = static_cast<UpsampleCall&>(*capsule);
    const variable_list saved = context->get_saved_variables();
    const at::Tensor dy = channels_last(grads[0]);
    const auto [da, dw] =
        library_gradients(dy, activation_of(call.input), saved[0], {.stride = {2, 2, 2}, .transposed = true},
                          {call.input_learns, saved[0].requires_grad()});
    result[0] = da;
    result[1] = dw;
    if (saved[1].defined()) result[2] = channel_sums(dy, saved[1]);
    call.input = {};
    return result;
  }
};

}  // namespace

std::optional<at::Tensor> upsample(const Feature& input, const ConvLayer& layer) {
  const ConvGeometry& g = layer.geometry;
  const Extent3 twos{2, 2, 2}, none{0, 0, 0};
  const bool doubles = g.kernel == twos && g.stride == twos && g.groups == 1 && (!g.padding || *g.padding == none) &&
                       g.output_padding == none;
  if (!doubles || !any_tensor(input).is_cuda() || !own_convolutions_allowed()) return std::nullopt;
  const UpsampleCallPtr call = c10::make_intrusive<UpsampleCall>();
  call->input = input_of(input);
  const at::Tensor& weight = layer.weight;
  if (!is_ours(call->input.raw) || weight.scalar_type() != call->input.raw.scalar_type() ||
      (layer.bias.defined() && layer.bias.scalar_type() != weight.scalar_type()) ||
      !cuda::upsample_available(described(call->input, weight, layer.bias)))
    return std::nullopt;
  const at::Tensor activation = std::exchange(call->input.activation, at::Tensor());
  call->input_learns = activation.requires_grad();
  const std::optional<at::Tensor> bias = layer.bias.defined() ? std::optional(layer.bias) : std::nullopt;
  return OwnUpsample::apply(activation, weight, bias, call);
}

}  // namespace vox::ops::fused
