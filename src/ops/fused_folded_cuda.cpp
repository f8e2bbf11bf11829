// Convolutions of stride 2 with even kernels, as cuDNN does best: of stride 1 over blocks of 2x2x2 voxels whose voxels
// are channels, with a kernel half as long. Few channels keep tensor cores waiting, and cuDNN's kernels of stride 1 are
// its better ones: 64 to 128 channels at 64^3, batch 2, take 0.12 ms instead of 0.17 forward and 0.12 instead of 0.29
// for the weight gradient (H200, cuDNN 9.19); the blocks are one pass, which applies the norm, too.
#include <torch/torch.h>

#include "ops/columns.h"
#include "ops/device.h"
#include "ops/fused.h"
#include "ops/kernel_choice.h"
#include "ops/library_conv.h"

namespace vox::ops::fused {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

const Extent3 kTwos{2, 2, 2};

// [first, second, kernel] to [first, 8 * second, kernel / 2], a copy whose channels are last.
at::Tensor folded_weight(const at::Tensor& weight) {
  const int64_t z = weight.size(2) / 2, y = weight.size(3) / 2, x = weight.size(4) / 2, c = weight.size(1);
  return weight.permute({0, 2, 3, 4, 1})
      .reshape({weight.size(0), z, 2, y, 2, x, 2, c})
      .permute({0, 1, 3, 5, 2, 4, 6, 7})
      .reshape({weight.size(0), z, y, x, 8 * c})
      .permute({0, 4, 1, 2, 3});
}

at::Tensor unfolded_gradient(const at::Tensor& dw, const at::Tensor& weight) {
  const int64_t z = dw.size(2), y = dw.size(3), x = dw.size(4), c = weight.size(1);
  return dw.permute({0, 2, 3, 4, 1})
      .reshape({weight.size(0), z, y, x, 2, 2, 2, c})
      .permute({0, 1, 4, 2, 5, 3, 6, 7})
      .reshape({weight.size(0), 2 * z, 2 * y, 2 * x, c})
      .permute({0, 4, 1, 2, 3});
}

struct FoldedCall : torch::CustomClassHolder {
  cuda::Windows blocks;  // of two voxels a side, over the larger volume
  Input input;           // without `activation`
  at::Tensor source;     // of an image: what it was converted from
  bool transposed = false, input_learns = false;
};
using FoldedCallPtr = c10::intrusive_ptr<FoldedCall>;

at::Tensor as_blocks(const at::Tensor& columns, const cuda::Windows& blocks) {
  return as_volume(columns, {blocks.volume.n, blocks.z, blocks.y, blocks.x, blocks.width()});
}

at::Tensor blocks_read(const FoldedCall& call, at::ScalarType type) {
  return as_blocks(columns_of(call.input, call.blocks, type), call.blocks);
}

// What the forward pass read, once more.
at::Tensor blocks_again(FoldedCall& call, at::ScalarType type) {
  if (call.source.defined()) {
    const auto values = interleaved(call.source, type);
    call.input.raw = values ? *values : channels_last(call.source.to(type));
  }
  return blocks_read(call, type);
}

at::Tensor from_blocks(const at::Tensor& values, const FoldedCall& call, const at::Tensor& bias) {
  return volume_of({as_matrix(channels_last(values)), {}, bias}, call.blocks, values.scalar_type());
}

struct FoldedConv : torch::autograd::Function<FoldedConv> {
  // The activation takes part for its gradient alone.
  static at::Tensor forward(AutogradContext* context, const at::Tensor&, const at::Tensor& weight,
                            const std::optional<at::Tensor>& given_bias, const FoldedCallPtr& call) {
    const at::Tensor kernel = folded_weight(weight), bias = given_bias.value_or(at::Tensor());
    const at::ScalarType type = weight.scalar_type();
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    if (!call->transposed) {
      const at::Tensor read = blocks_read(*call, type);
      const bool held = call->input_learns || call->source.defined();  // by somebody else: blocks are made again
      if (!call->input_learns) call->input = {};
      context->save_for_backward({weight, bias, held ? at::Tensor() : read});
      return channels_last(library_convolution(read, kernel, given_bias, {}));
    }
    const at::Tensor& read = call->input.raw;
    context->save_for_backward({weight, bias, read});
    return from_blocks(library_convolution(read, kernel, {}, {.transposed = true}), *call,
                       bias.defined() ? bias.to(at::kFloat) : bias);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    variable_list result(4);
    if (!grads[0].defined()) return result;
    const auto capsule = context->saved_data["call"].toCapsule();
    auto& call = static_cast<FoldedCall&>(*capsule);
    const variable_list saved = context->get_saved_variables();
    const bool owned = is_ours_alone(grads[0]);
    const at::Tensor &weight = saved[0], &bias = saved[1], dy = channels_last(grads[0]);
    const at::Tensor read = saved[2].defined() ? saved[2] : blocks_again(call, weight.scalar_type());
    call.input = {};  // a node outlives its backward; what it read need not
    call.source.reset();
    const at::Tensor from =
        call.transposed ? as_blocks(columns_of(dy, call.blocks, dy.scalar_type()), call.blocks) : dy;
    if (bias.defined()) result[2] = bias_gradient(dy, bias);
    if (owned && call.transposed) free_memory(grads[0]);  // its blocks are there
    const auto [dx, dw] = library_gradients(from, read, folded_weight(weight), {.transposed = call.transposed},
                                            {call.input_learns, weight.requires_grad()});
    if (call.input_learns) result[0] = call.transposed ? channels_last(dx) : from_blocks(dx, call, {});
    if (weight.requires_grad()) result[1] = unfolded_gradient(dw, weight);
    return result;
  }
};

// Over the volume of `size` voxels; absent: the blocks do not fit.
std::optional<cuda::Windows> blocks_over(const cuda::Shape5& volume, const ConvGeometry& g, const Extent3& padding) {
  const Extent3 size{volume.z, volume.y, volume.x};
  if (g.stride != kTwos || g.groups != 1) return std::nullopt;
  Extent3 count;
  for (int a = 0; a < 3; ++a) {
    if (g.kernel[a] % 2 != 0 || size[a] + 2 * padding[a] < g.kernel[a] || g.output_padding[a] != 0) return std::nullopt;
    count[a] = (size[a] + 2 * padding[a] - g.kernel[a]) / 2 + g.kernel[a] / 2;
  }
  const cuda::Windows blocks = windows_over(volume, count, {.kernel = kTwos, .stride = kTwos}, padding);
  return cuda::columns_available(blocks) ? std::optional(blocks) : std::nullopt;
}

// Where few channels or large volumes make up for the pass.
bool folding_wins(const cuda::Windows& blocks, const ConvGeometry& g) {
  constexpr int64_t kChannels = 64, kBlocks = 1 << 14;
  return blocks.volume.c <= kChannels && blocks.rows() >= kBlocks && g.kernel != kTwos;
}

RawOutput folded(const FoldedCallPtr& call, const ConvLayer& layer, const Epilogue& epilogue) {
  const at::Tensor activation = std::exchange(call->input.activation, at::Tensor());
  call->input_learns = activation.requires_grad();
  const Biases biases = biases_of(layer, epilogue);
  return {FoldedConv::apply(activation, layer.weight, biases.added, call), {}, biases.folded};
}

}  // namespace

std::optional<RawOutput> convolve_folded(const Feature& input, const ConvLayer& layer, const Epilogue& epilogue,
                                         ProductUse use) {
  const ConvGeometry& g = layer.geometry;
  const at::Tensor& any = any_tensor(input);
  const at::ScalarType type = layer.weight.scalar_type();
  if (!suits_products(input, layer) || type != any.scalar_type() || type == at::kFloat) return std::nullopt;
  const Extent3 padding = g.padding.value_or(Extent3{(g.kernel.z - 1) / 2, (g.kernel.y - 1) / 2, (g.kernel.x - 1) / 2});
  cuda::Shape5 volume = shape_of(any);
  volume.c = layer.weight.size(1);
  const auto blocks = blocks_over(volume, g, padding);
  if (!blocks || (use == ProductUse::kWhereItWins && !folding_wins(*blocks, g))) return std::nullopt;
  const FoldedCallPtr call = c10::make_intrusive<FoldedCall>();
  call->blocks = *blocks;
  call->input = part_of(input);
  if (!is_ours(call->input.raw)) return std::nullopt;
  if (!call->input.activation.requires_grad()) call->source = input.state().source;
  return folded(call, layer, epilogue);
}

std::optional<RawOutput> transposed_folded(const Feature& input, const ConvLayer& layer, const Epilogue& epilogue,
                                           ProductUse use) {
  const ConvGeometry& g = layer.geometry;
  const at::Tensor& any = any_tensor(input);
  const at::ScalarType type = layer.weight.scalar_type();
  if (!suits_products(input, layer) || type != any.scalar_type() || type == at::kFloat) return std::nullopt;
  const Extent3 padding = g.padding.value_or(Extent3{0, 0, 0}), from{any.size(2), any.size(3), any.size(4)};
  Extent3 size;
  for (int a = 0; a < 3; ++a) size[a] = (from[a] - 1) * g.stride[a] - 2 * padding[a] + g.kernel[a];
  if (size.z < 1 || size.y < 1 || size.x < 1) return std::nullopt;
  const auto blocks = blocks_over({any.size(0), size.z, size.y, size.x, layer.weight.size(1)}, g, padding);
  if (!blocks || (use == ProductUse::kWhereItWins && !folding_wins(*blocks, g))) return std::nullopt;
  const FoldedCallPtr call = c10::make_intrusive<FoldedCall>();
  call->blocks = *blocks;
  call->transposed = true;
  const at::Tensor values = input.materialize();
  call->input = {values, values.detach(), {}, {}, 1};
  if (!is_ours(values)) return std::nullopt;
  return folded(call, layer, epilogue);
}

}  // namespace vox::ops::fused
