#include "ops/layer_trace.h"

#include <torch/torch.h>

#include <utility>

#include "ops/feature_state.h"
#include "ops/trace.h"

namespace vox::ops {
namespace {

constexpr int64_t kMostLogits = 8;  // that the output layer's kernel takes (kernels/head_cuda.h)

// Whether the fused path leaves norm and activation to the readers.
bool waits_for_reader(const Epilogue& epilogue) {
  const Activation act = epilogue.activation.kind;
  const bool simple = act == Activation::kNone || act == Activation::kLeakyRelu || act == Activation::kRelu;
  return epilogue.norm.kind != NormKind::kNone && !epilogue.residual && simple;
}

}  // namespace

int64_t tensors_kept(const Epilogue& epilogue) {
  const Activation act = epilogue.activation.kind;
  const bool in_place = act == Activation::kNone || act == Activation::kLeakyRelu || act == Activation::kRelu;
  return (epilogue.norm.kind != NormKind::kNone) + !in_place + (epilogue.dropout.rate > 0 && epilogue.dropout.elements);
}

Feature shape_alone(const at::Tensor& like, int64_t channels, const Extent3& size) {
  return Feature::plain(at::empty({like.size(0), channels, size.z, size.y, size.x}, like.options().device(at::kMeta)));
}

void record_kept(const Feature& feature, int64_t copies) {
  if (Trace* trace = Trace::current()) trace->add_kept(copies * feature.materialize().numel());
}

void record_kept_fused(int64_t elements) {
  if (Trace* trace = Trace::current()) trace->add_kept_fused(elements);
}

void record_moved(int64_t elements) {
  if (Trace* trace = Trace::current()) trace->add_moved(elements);
}

void record_passed_on(const Feature& feature) {
  const Feature::State& state = feature.state();
  if (state.counted && !state.read) record_kept_fused(-state.values.numel());
}

Reading record_reading(const Feature& input, bool reads_raw) {
  Reading reading{.raw = reads_raw};
  Trace* const trace = Trace::current();
  if (!trace) return reading;
  const Feature::State& state = input.state();
  if (!state.values.defined() && state.first) {
    reading.joined = state.first->materialize().numel() + state.second->materialize().numel();
    reading.written = reads_raw ? 0 : reading.joined;
    for (const Feature& part : {*state.first, *state.second})
      reads_raw ? void(part.state().read = true) : record_passed_on(part);
  } else if (!reads_raw && state.waits && !std::exchange(state.applied, true)) {
    reading.written = state.values.numel();
  }
  state.read = true;
  trace->add_kept_fused(reading.written);
  return reading;
}

bool reads_raw(const ConvLayer& layer) {
  const ConvGeometry& g = layer.geometry;
  const Extent3 ones{1, 1, 1}, threes{3, 3, 3};
  if (g.stride != ones || g.groups != 1) return false;
  const int64_t in = layer.weight.size(1), out = layer.weight.size(0);
  if (g.kernel == ones) return out <= kMostLogits;  // a head
  const auto has_kernel = [](int64_t channels) { return channels == 32 || channels == 64 || channels == 128; };
  return g.kernel == threes && has_kernel(in) && has_kernel(out);
}

Feature record_conv(const at::Tensor& input, const ConvLayer& layer, const Epilogue& epilogue, const ConvSize& conv) {
  const Feature result = shape_alone(input, conv.channels, conv.output);
  record_kept(result, 1 + tensors_kept(epilogue));
  const bool waits = waits_for_reader(epilogue), applied = epilogue.norm.kind != NormKind::kNone && !waits;
  if (Trace* trace = Trace::current()) {
    trace->add_kept_fused((applied ? 2 : 1) * result.materialize().numel());
    const int64_t parameters = layer.weight.numel() + (layer.bias.defined() ? layer.bias.numel() : 0);
    const double macs =
        static_cast<double>(layer.weight.numel()) * static_cast<double>(input.size(0) * conv.places.voxels());
    const ConvGeometry& g = layer.geometry;
    trace->add({.name = layer.name ? *layer.name : "",
                .output = result.materialize().sizes().vec(),
                .parameters = parameters,
                .macs = macs,
                .input = input.numel(),
                .kept_fused = trace->kept().fused,
                .in_channels = input.size(1),
                .groups = g.groups,
                .taps = g.kernel.voxels(),
                .strided = g.stride.voxels() != 1,
                .transposed = conv.places != conv.output,
                .own_kernel = conv.reading.raw,
                .has_norm = epilogue.norm.kind != NormKind::kNone,
                .joined = conv.reading.joined,
                .written = conv.reading.written + (applied ? result.materialize().numel() : 0)});
  }
  return Feature::from({.values = result.materialize(), .waits = waits, .counted = !waits});
}

}  // namespace vox::ops
