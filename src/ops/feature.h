// What networks pass between layers: a raw convolution output (or two that stand for a concatenation) together with
// the norm and activation that are still to be applied. Only this folder looks inside, so that a GPU applies them while
// it loads the input of the next convolution (ops/fused.h). The CPU applies them at once.
// A Feature is a handle: copies share one materialization, so that the gradients of two consumers (a skip) are summed
// before they go back through the norm once.
// A Feature on the meta device carries shapes alone: a whole network runs on it at no cost, for ops/trace.h to record.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/shape.h"
#include "ops/epilogue.h"

namespace vox::ops {

struct ConvGeometry {
  Extent3 kernel{3, 3, 3}, stride{1, 1, 1};
  int64_t groups = 1;
  std::optional<Extent3> padding{};  // unset: what keeps the size at stride 1; none for conv_transpose
  Extent3 output_padding{0, 0, 0};   // of conv_transpose
};

struct ConvLayer {           // borrows its tensors for the call
  const at::Tensor& weight;  // [out, in / groups, kernel]; [in, out / groups, kernel] for conv_transpose
  const at::Tensor& bias;    // [out], or undefined
  ConvGeometry geometry;
  const std::string* name = nullptr;  // for a trace
};

class Feature {
 public:
  static Feature plain(const at::Tensor& values);  // [N, C, Z, Y, X], nothing deferred
  // An image in another type or layout: a layer may keep what it came from instead, which somebody holds anyway, and
  // convert it again.
  static Feature converted(const at::Tensor& values, const at::Tensor& source);
  static Feature concat(const Feature& first, const Feature& second);  // along the channels
  const at::Tensor& materialize() const;

  struct State;  // ops/feature_state.h
  static Feature from(State state);
  const State& state() const { return *state_; }

 private:
  explicit Feature(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

// A bias directly before an instance norm is dropped: the norm subtracts it again, its gradient is exactly zero.
Feature conv(const Feature& input, const ConvLayer& layer, const Epilogue& epilogue = {});
Feature conv_transpose(const Feature& input, const ConvLayer& layer, const Epilogue& epilogue = {});
// An epilogue on its own: networks that normalise before they convolve.
Feature apply(const Feature& input, const Epilogue& epilogue);
Feature add(const Feature& first, const Feature& second);
Feature mean(const Feature& input, const std::array<bool, 3>& over);  // the axes z, y, x, which become 1 long
Feature gate(const Feature& input, const Feature& logits);            // times their sigmoid; axes 1 long are repeated

struct PoolWindow {
  Extent3 kernel{2, 2, 2}, stride{2, 2, 2}, padding{0, 0, 0};
};
Feature max_pool(const Feature& input, const PoolWindow& window);
Feature average_pool(const Feature& input, const PoolWindow& window);  // padding is not counted

enum class Interpolation { kNearest, kLinear, kLinearAlignCorners };
Feature upsample(const Feature& input, const Extent3& factor, Interpolation how);
// Groups of factor^3 channels become blocks of voxels (Shi et al. 2016), z slowest.
Feature pixel_shuffle(const Feature& input, int64_t factor);

enum class PadWith { kZeros, kEdge };
Feature pad(const Feature& input, const Extent3& before, const Extent3& after, PadWith with);

}  // namespace vox::ops
