// Random convolutions for the tests of the Hopper kernels: inputs with the norm they wait for, weights, and torch's
// answer.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <string>
#include <vector>

#include "kernels/hopper/conv3d.h"

namespace vox::cuda::testing_conv3d {

using at::Tensor;
inline const double kNan = std::nan("");
inline const std::vector<int64_t> kOnes{1, 1, 1};

inline at::TensorOptions on_gpu(at::ScalarType type) {
  return at::TensorOptions().device(at::kCUDA).dtype(type);
}

struct Size {
  int64_t n, z, y, x;
  int64_t voxels() const { return n * z * y * x; }
};
inline std::ostream& operator<<(std::ostream& out, const Size& s) {
  return out << s.n << "x" << s.z << "x" << s.y << "x" << s.x;
}

// [n, c, z, y, x] whose memory is [n, z, y, x, c].
inline Tensor activation(const Size& s, int64_t c) {
  return at::randn({s.n, s.z, s.y, s.x, c}, on_gpu(at::kBFloat16)).permute({0, 4, 1, 2, 3});
}
// Room for `count` elements and some more, all NaN.
struct Poisoned {
  static constexpr int64_t kBehind = 256;
  Tensor all;
  explicit Poisoned(int64_t count, at::ScalarType type) : all(at::full({count + kBehind}, kNan, on_gpu(type))) {}
  Tensor view(at::IntArrayRef shape) const { return all.narrow(0, 0, all.size(0) - kBehind).view(shape); }
  bool untouched_behind() const { return all.narrow(0, all.size(0) - kBehind, kBehind).isnan().all().item<bool>(); }
};
inline double error(const Tensor& got, const Tensor& expected) {
  return ((got.to(at::kDouble) - expected).norm() / expected.norm()).item<double>();
}

struct Input {
  Tensor x, scale, shift;
  double slope = 1;
  ConvInput pointers() const {
    ConvInput input{x.data_ptr(), x.size(1)};
    if (scale.defined()) {
      input.scale = scale.data_ptr<float>();
      input.shift = shift.data_ptr<float>();
      input.slope = static_cast<float>(slope);
    }
    return input;
  }
  Tensor applied() const {  // float64, of what the tensor core gets
    if (!scale.defined()) return x.to(at::kDouble);
    const auto wide = [&](const Tensor& t) { return t.to(at::kDouble).view({x.size(0), x.size(1), 1, 1, 1}); };
    const Tensor z = x.to(at::kDouble) * wide(scale) + wide(shift);
    return at::where(z > 0, z, z * slope).to(at::kBFloat16).to(at::kDouble);
  }
};
inline Input make_input(const Size& s, int64_t channels, bool prologue, double slope) {
  Input input{.x = activation(s, channels)};
  if (prologue) {
    input.scale = at::rand({s.n, channels}, on_gpu(at::kFloat)) + 0.5;
    input.shift = at::randn({s.n, channels}, on_gpu(at::kFloat));
    input.slope = slope;
  }
  return input;
}

struct Case {
  Size size;
  std::vector<Input> inputs;
  std::vector<int64_t> outputs;
  Conv3d conv() const {
    Conv3d conv{size.n, size.z, size.y, size.x};
    for (size_t i = 0; i < inputs.size(); ++i) conv.input[i] = inputs[i].pointers();
    for (size_t i = 0; i < outputs.size(); ++i) conv.output[i].channels = outputs[i];
    return conv;
  }
  int64_t in() const { return conv().in(); }
  int64_t out() const { return conv().out(); }
  Tensor input() const {
    std::vector<Tensor> parts;
    for (const Input& one : inputs) parts.push_back(one.applied());
    return at::cat(parts, 1);
  }
};
inline std::ostream& operator<<(std::ostream& out, const Case& c) {
  out << c.size;
  for (const Input& input : c.inputs)
    out << " in " << input.x.size(1) << (input.scale.defined() ? " norm, slope " + std::to_string(input.slope) : "");
  for (const int64_t channels : c.outputs) out << " out " << channels;
  return out;
}

inline Tensor random_weights(int64_t out, int64_t in) {  // memory [out][3][3][3][in]
  const double spread = 1 / std::sqrt(27.0 * static_cast<double>(in));
  return (at::randn({out, 3, 3, 3, in}, on_gpu(at::kFloat)) * spread).to(at::kBFloat16).permute({0, 4, 1, 2, 3});
}
inline Tensor packed(const Tensor& weights, ConvWay way) {
  Tensor result = at::full({weights.numel()}, kNan, on_gpu(at::kBFloat16));
  conv3d_pack(weights.data_ptr(), result.data_ptr(), weights.size(1), weights.size(0), way, nullptr);
  return result;
}

inline Tensor weight_gradient(const Tensor& x, const Tensor& dy, const Tensor& weights) {
  return std::get<1>(at::convolution_backward(dy, x, weights, at::OptionalIntArrayRef(), kOnes, kOnes, kOnes, false,
                                              {0, 0, 0}, 1, {false, true, false}));
}

}  // namespace vox::cuda::testing_conv3d
