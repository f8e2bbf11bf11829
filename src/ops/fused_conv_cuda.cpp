#include <torch/torch.h>

#include <functional>

#include "base/error.h"
#include "kernels/head_cuda.h"
#include "kernels/hopper/conv3d.h"
#include "ops/device.h"
#include "ops/fused.h"
#include "ops/fused_cuda.h"
#include "ops/kernel_choice.h"
#include "ops/trace.h"

namespace vox::ops::fused {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// One input, or the two of a concatenation.
std::vector<Input> inputs_of(const Feature& feature) {
  const Feature::State& state = feature.state();
  if (!state.values.defined() && state.first) return {input_of(*state.first), input_of(*state.second)};
  return {input_of(feature)};
}

cuda::ConvInput described(const Input& input) {
  return {memory(input.raw), input.raw.size(1), floats(input.scale), floats(input.shift),
          static_cast<float>(input.slope)};
}

cuda::Conv3d described(const std::vector<Input>& inputs, const at::Tensor& output, int64_t channels) {
  const at::Tensor& raw = inputs[0].raw;
  cuda::Conv3d conv{.n = raw.size(0), .z = raw.size(2), .y = raw.size(3), .x = raw.size(4)};
  for (size_t i = 0; i < inputs.size(); ++i) conv.input[i] = described(inputs[i]);
  conv.output[0] = {memory(output), channels};
  return conv;
}

// From the gradient of the output to those of the inputs: the same kernel with mirrored weights.
cuda::Conv3d gradient_of(const cuda::Conv3d& conv) {
  cuda::Conv3d gradient{.n = conv.n, .z = conv.z, .y = conv.y, .x = conv.x};
  gradient.input[0] = {conv.output[0].y, conv.output[0].channels};
  for (int i = 0; i < 2; ++i) gradient.output[i].channels = conv.input[i].channels;
  return gradient;
}

// Has the data gradient `da` leave what the backward of its input's norm would sum up of it. Whoever shares the input
// adds a gradient of his own: then the sums have to wait for the total.
void leave_norm_sums(const Input& input, const at::Tensor& da, int64_t rows, cuda::ConvOutput& output) {
  if (!input.norm || input.norm->readers != 1) return;
  NormBackward& norm = *input.norm;
  const int64_t n = da.size(0), c = da.size(1);
  norm.sums = at::empty({n, rows, 2, c}, norm.statistics.options());
  norm.gradient = memory(da);
  const float* const mean = floats(norm.statistics);
  output.norm = {
      memory(input.raw), floats(input.scale), floats(input.shift), mean, mean + n * c, static_cast<float>(input.slope),
      floats(norm.sums)};
}

struct ConvCall : torch::CustomClassHolder {
  std::vector<Input> inputs;  // `activation` is undefined here: the call must not keep the graph that owns it alive
  bool first_layer = false, wants_moments = false, inputs_learn = false;
  at::Tensor moments;
};
using ConvCallPtr = c10::intrusive_ptr<ConvCall>;

struct OwnConv : torch::autograd::Function<OwnConv> {
  // The two activations take part for their gradients alone.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& first, const std::optional<at::Tensor>&,
                            const at::Tensor& weight, const ConvCallPtr& call) {
    std::vector<int64_t> sizes = first.sizes().vec();
    sizes[1] = weight.size(0);
    const at::Tensor result = at::empty(sizes, call->inputs[0].raw.options(), at::MemoryFormat::ChannelsLast3d);
    launch(*call, weight, result);
    context->save_for_backward({weight});
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    return result;
  }

  static void launch(ConvCall& of, const at::Tensor& weight, const at::Tensor& result) {
    ConvCall* const call = &of;
    const std::vector<int64_t> sizes = result.sizes().vec();
    const cuda::Conv3d conv = described(call->inputs, result, sizes[1]);
    const cuda::Stream stream = current_stream(result);
    if (call->wants_moments) {
      const int64_t rows =
          call->first_layer ? cuda::conv3d_first_layer_moment_rows(conv) : cuda::conv3d_moment_rows(conv);
      call->moments = at::empty({conv.n, rows, 3, sizes[1]}, result.options().dtype(at::kFloat));
    }
    if (call->first_layer) {
      cuda::conv3d_first_layer(conv, memory(weight), floats(call->moments), stream);
    } else {
      const at::Tensor filled = with_channels_of_zeros(weight, conv.in()),
                       packed = at::empty({filled.numel()}, weight.options());
      cuda::conv3d_pack(memory(filled), memory(packed), conv.in(), conv.out(), cuda::ConvWay::kForward, stream);
      cuda::conv3d_forward(conv, memory(packed), floats(call->moments), stream);
    }
  }

  // A step of training with it, of which nothing is kept: for timing.
  static void rehearse(ConvCall& call, const at::Tensor& weight, bool learns) {
    std::vector<int64_t> sizes = call.inputs[0].raw.sizes().vec();
    sizes[1] = weight.size(0);
    const at::Tensor y = at::empty(sizes, call.inputs[0].raw.options(), at::MemoryFormat::ChannelsLast3d);
    launch(call, weight, y);
    if (!learns) return;
    const cuda::Conv3d conv = described(call.inputs, y, sizes[1]);
    variable_list gradients(4);
    if (call.inputs_learn) add_input_gradients(call, conv, weight, gradients);
    weight_gradient(call, conv, weight);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    variable_list result(4);
    if (!grads[0].defined()) return result;
    const auto capsule = context->saved_data["call"].toCapsule();
    auto& call = static_cast<ConvCall&>(*capsule);
    const at::Tensor weight = context->get_saved_variables()[0];
    const at::Tensor dy = channels_last(grads[0]);
    const cuda::Conv3d conv = described(call.inputs, dy, dy.size(1));
    if (call.inputs_learn) add_input_gradients(call, conv, weight, result);
    if (weight.requires_grad()) result[2] = weight_gradient(call, conv, weight);
    call.inputs.clear();  // a node outlives its backward; what it read need not
    return result;
  }

 private:
  static void add_input_gradients(const ConvCall& call, const cuda::Conv3d& conv, const at::Tensor& weight,
                                  variable_list& result) {
    cuda::Conv3d gradient = gradient_of(conv);
    const int64_t rows = cuda::conv3d_moment_rows(gradient);
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      result[i] = at::empty_like(call.inputs[i].raw);
      gradient.output[i].y = memory(result[i]);
      leave_norm_sums(call.inputs[i], result[i], rows, gradient.output[i]);
    }
    const at::Tensor packed = at::empty({weight.numel()}, weight.options());
    const cuda::Stream stream = current_stream(weight);
    cuda::conv3d_pack(memory(weight), memory(packed), conv.in(), conv.out(), cuda::ConvWay::kGradient, stream);
    cuda::conv3d_forward(gradient, memory(packed), nullptr, stream);
  }

  static at::Tensor weight_gradient(const ConvCall& call, const cuda::Conv3d& conv, const at::Tensor& weight) {
    const at::Tensor dw = at::empty({conv.out(), 3, 3, 3, conv.in()}, weight.options().dtype(at::kFloat));
    const int64_t bytes = call.first_layer ? cuda::conv3d_first_layer_workspace(conv) : cuda::conv3d_workspace(conv);
    const at::Tensor space = workspace(bytes, weight);
    const cuda::Stream stream = current_stream(weight);
    call.first_layer ? cuda::conv3d_first_layer_weight_gradient(conv, floats(dw), memory(space), stream)
                     : cuda::conv3d_weight_gradient(conv, floats(dw), memory(space), stream);
    return dw.narrow(4, 0, weight.size(1)).contiguous().permute({0, 4, 1, 2, 3});
  }
};

bool is_plain_3x3x3(const ConvGeometry& g) {
  const Extent3 ones{1, 1, 1}, threes{3, 3, 3};
  return g.kernel == threes && g.stride == ones && g.groups == 1 && (!g.padding || *g.padding == ones);
}

// The same with cuDNN, which reads one tensor that waits for nothing.
void rehearse_cudnn(const at::Tensor& x, const at::Tensor& scratch, const at::Tensor& weight, bool learns,
                    bool inputs_learn) {
  const std::vector<int64_t> ones{1, 1, 1}, none{0, 0, 0};
  if (scratch.defined()) scratch.copy_(x);  // as many bytes as the pass before it
  const at::Tensor y = at::convolution(x, weight, {}, ones, ones, ones, false, none, 1);
  if (learns)
    at::convolution_backward(y, x, weight, at::OptionalIntArrayRef(), ones, ones, ones, false, none, 1,
                             {inputs_learn, true, false});
}

// One sample stands for all where it fills the GPU alone: what is compared takes memory of its own.
bool own_is_faster(const std::vector<Input>& inputs, const at::Tensor& weight, bool learns) {
  constexpr int64_t kFillsTheGpu = 1 << 18;  // voxels
  const at::NoGradGuard no_grad;
  const ConvCallPtr call = c10::make_intrusive<ConvCall>();
  call->inputs = inputs;
  for (Input& input : call->inputs) {
    if (input.raw[0][0].numel() >= kFillsTheGpu) input.raw = input.raw.narrow(0, 0, 1);
    input.norm.reset();  // nobody comes for its sums
  }
  std::vector<at::Tensor> parts;
  bool waits = inputs.size() > 1;
  for (const Input& input : call->inputs) {
    call->inputs_learn |= input.activation.requires_grad();
    waits |= input.scale.defined();
    parts.push_back(input.raw);
  }
  const at::Tensor x = channels_last(at::cat(parts, 1).narrow(1, 0, weight.size(1))), detached = weight.detach();
  const at::Tensor scratch = waits ? at::empty_like(x) : at::Tensor();
  const double own = milliseconds_of(x, [&] { OwnConv::rehearse(*call, detached, learns); });
  const double cudnn = milliseconds_of(x, [&] { rehearse_cudnn(x, scratch, detached, learns, call->inputs_learn); });
  return own < cudnn;
}

std::string name_of(const cuda::Conv3d& conv, const at::Tensor& on, int64_t channels, bool learns) {
  static const std::string machine = gpu_and_libraries(on);
  std::string name = concat(machine, ": 3x3x3 ", conv.n, "x", conv.z, "x", conv.y, "x", conv.x);
  for (const cuda::ConvInput& input : conv.input)
    if (input.channels > 0) name += concat(" from ", input.channels, input.scale != nullptr ? " with norm" : "");
  if (channels < conv.in()) name += concat(", filled up from ", channels, ",");
  return name + concat(" to ", conv.out(), learns ? ", learning" : "");
}

// The kernels compute with a block of channels, most of them zeros, faster than cuDNN does with a few. Two are left to
// products over columns.
bool is_image_of_few(const std::vector<Input>& inputs) {
  const Input& image = inputs[0];
  if (inputs.size() > 1 || image.activation.requires_grad() || image.scale.defined() || !is_ours(image.raw))
    return false;
  return image.raw.size(1) > 2 && image.raw.size(1) < kChannelBlock;
}

std::vector<Input> filled_up(std::vector<Input> inputs) {
  if (is_image_of_few(inputs)) inputs[0].raw = with_channels_of_zeros(inputs[0].raw, kChannelBlock);
  return inputs;
}

enum class Kernel { kNone, kFirstLayer, kGeneral };

Kernel kernel_for(const std::vector<Input>& inputs, const ConvLayer& layer) {
  for (const Input& input : inputs) {
    if (!is_ours(input.raw)) return Kernel::kNone;
  }
  cuda::Conv3d conv = described(inputs, at::Tensor(), layer.weight.size(0));
  if (is_image_of_few(inputs)) conv.input[0].channels = kChannelBlock;
  const bool learns = at::GradMode::is_enabled() && layer.weight.requires_grad();
  if (conv.in() == 1) {
    const bool image = !inputs[0].activation.requires_grad();
    return image && cuda::conv3d_first_layer_available(conv) ? Kernel::kFirstLayer : Kernel::kNone;
  }
  std::vector<cuda::ConvTimes> passes{cuda::conv3d_forward_times(conv)};
  if (learns) {
    passes.push_back(cuda::conv3d_forward_times(gradient_of(conv)));
    passes.push_back(cuda::conv3d_weight_gradient_times(conv));
  }
  bool own = true;  // as expected
  cuda::ConvTimes all;
  for (const cuda::ConvTimes& pass : passes) {
    if (pass.own_ms == 0) return Kernel::kNone;
    own &= pass.own_ms < pass.cudnn_ms;
    all.own_ms += pass.own_ms, all.cudnn_ms += pass.cudnn_ms;
  }
  constexpr double kClear = 1.4;  // the table is rarely wrong by so much
  const bool clear = all.own_ms * kClear < all.cudnn_ms || all.cudnn_ms * kClear < all.own_ms;
  if (clear) return own ? Kernel::kGeneral : Kernel::kNone;
  std::function<bool()> time_both;
  if (!is_captured(inputs[0].raw)) time_both = [&] { return own_is_faster(filled_up(inputs), layer.weight, learns); };
  own = choose_own(name_of(conv, inputs[0].raw, layer.weight.size(1), learns), own, time_both);
  return own ? Kernel::kGeneral : Kernel::kNone;
}

struct HeadCall : torch::CustomClassHolder {
  Input input;  // without `activation`
  bool input_learns = false;
};
using HeadCallPtr = c10::intrusive_ptr<HeadCall>;

cuda::Head described(const Input& input, const at::Tensor& weight) {
  return {.x = memory(input.raw),
          .type = scalar_of(input.raw),
          .shape = shape_of(input.raw),
          .out = weight.size(0),
          .scale = floats(input.scale),
          .shift = floats(input.shift),
          .slope = static_cast<float>(input.slope),
          .weights = floats(weight)};
}

struct OwnHead : torch::autograd::Function<OwnHead> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& activation, const at::Tensor& weight,
                            const std::optional<at::Tensor>& given_bias, const HeadCallPtr& call) {
    std::vector<int64_t> sizes = activation.sizes().vec();
    sizes[1] = weight.size(0);
    const at::Tensor logits = at::empty(sizes, weight.options()), bias = given_bias.value_or(at::Tensor());
    cuda::head_forward(described(call->input, weight), floats(bias), floats(logits), current_stream(logits));
    context->save_for_backward({weight, bias});
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    return logits;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    variable_list result(4);
    if (!grads[0].defined()) return result;
    const auto capsule = context->saved_data["call"].toCapsule();
    auto& call = static_cast<HeadCall&>(*capsule);
    const variable_list saved = context->get_saved_variables();
    const cuda::Head head = described(call.input, saved[0]);
    const at::Tensor dlogits = grads[0].contiguous(), space = workspace(cuda::head_workspace(head), dlogits);
    if (call.input_learns) result[0] = at::empty_like(call.input.raw);
    result[1] = at::empty(saved[0].sizes(), saved[0].options());
    if (saved[1].defined()) result[2] = at::empty_like(saved[1]);
    cuda::head_backward(head, floats(dlogits), memory(result[0]), floats(result[1]), floats(result[2]), memory(space),
                        current_stream(dlogits));
    call.input = {};
    return result;
  }
};

}  // namespace

bool folds_bias(const ConvLayer& layer, const Epilogue& epilogue) {
  return layer.bias.defined() && epilogue.norm.kind == NormKind::kBatch && epilogue.norm.training &&
         epilogue.dropout.rate == 0 && layer.weight.is_cuda() && layer.weight.scalar_type() != at::kFloat &&
         layer.weight.suggest_memory_format() == at::MemoryFormat::ChannelsLast3d;
}

std::optional<RawOutput> convolve(const Feature& input, const ConvLayer& layer, const Epilogue& epilogue) {
  if (!any_tensor(input).is_cuda() || !own_convolutions_allowed() || !cuda::conv3d_available()) return std::nullopt;
  if (!is_plain_3x3x3(layer.geometry)) return std::nullopt;
  const bool folded = folds_bias(layer, epilogue),
             dropped = epilogue.norm.kind == NormKind::kInstance && !epilogue.dropout.before_norm;
  if (layer.bias.defined() && !folded && !dropped) return std::nullopt;
  const at::Tensor& weight = layer.weight;
  if (weight.scalar_type() != at::kBFloat16 || !weight.is_contiguous(at::MemoryFormat::ChannelsLast3d))
    return std::nullopt;
  std::vector<Input> inputs = inputs_of(input);
  const Kernel kernel = kernel_for(inputs, layer);
  if (kernel == Kernel::kNone) return std::nullopt;
  inputs = filled_up(std::move(inputs));
  const ConvCallPtr call = c10::make_intrusive<ConvCall>();
  const at::Tensor first = inputs[0].activation;
  const std::optional<at::Tensor> second = inputs.size() > 1 ? std::optional(inputs[1].activation) : std::nullopt;
  for (Input& part : inputs) {
    call->inputs_learn |= part.activation.requires_grad();
    part.activation.reset();
  }
  call->inputs = std::move(inputs);
  call->first_layer = kernel == Kernel::kFirstLayer;
  call->wants_moments = epilogue.norm.kind != NormKind::kNone && epilogue.dropout.rate == 0 &&
                        !(epilogue.norm.kind == NormKind::kBatch && !epilogue.norm.training);
  const at::Tensor values = OwnConv::apply(first, second, weight, call);
  return RawOutput{values, std::exchange(call->moments, at::Tensor()), folded ? layer.bias : at::Tensor()};
}

std::optional<at::Tensor> head(const Feature& input, const ConvLayer& layer, const Epilogue& epilogue) {
  const ConvGeometry& g = layer.geometry;
  const Extent3 ones{1, 1, 1}, none{0, 0, 0};
  const bool pointwise = g.kernel == ones && g.stride == ones && g.groups == 1 && (!g.padding || *g.padding == none);
  const bool bare = epilogue.norm.kind == NormKind::kNone && epilogue.activation.kind == Activation::kNone &&
                    epilogue.dropout.rate == 0 && !epilogue.residual;
  if (!pointwise || !bare || !any_tensor(input).is_cuda() || layer.weight.scalar_type() != at::kFloat)
    return std::nullopt;
  const HeadCallPtr call = c10::make_intrusive<HeadCall>();
  call->input = input_of(input);
  if (!is_ours(call->input.raw) || !layer.weight.is_contiguous() ||
      !cuda::head_available(described(call->input, layer.weight)))
    return std::nullopt;
  const at::Tensor activation = std::exchange(call->input.activation, at::Tensor());
  call->input_learns = activation.requires_grad();
  const std::optional<at::Tensor> bias = layer.bias.defined() ? std::optional(layer.bias) : std::nullopt;
  return OwnHead::apply(activation, layer.weight, bias, call);
}

}  // namespace vox::ops::fused
