// A norm layer with memory for everything that the kernels write, for the tests and timings of kernels/norm_cuda.h.
#pragma once

#include <torch/torch.h>

#include <ostream>

#include "kernels/norm_cuda.h"

namespace vox::cuda::testing_norm {

struct Case {
  Shape5 shape;
  at::ScalarType type = at::kBFloat16;
  NormOver over = NormOver::kInstance;
  int groups = 1;
  ActKind act = ActKind::kNone;
  bool residual = false, affine = true, slope_per_channel = false, frozen = false, aligned = true;
};

inline std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.shape.n << "x" << c.shape.z << "x" << c.shape.y << "x" << c.shape.x << "x" << c.shape.c << " "
             << c.type << " over " << int(c.over) << " groups " << c.groups << " act " << int(c.act) << " residual "
             << c.residual << " affine " << c.affine << " slopes " << c.slope_per_channel << " frozen " << c.frozen
             << " aligned " << c.aligned;
}

inline Scalar scalar_of(at::ScalarType type) {
  return type == at::kFloat ? Scalar::kFloat32 : type == at::kHalf ? Scalar::kFloat16 : Scalar::kBFloat16;
}

inline at::TensorOptions floats() {
  return at::TensorOptions(at::kCUDA).dtype(at::kFloat);
}
inline at::Tensor poisoned(at::IntArrayRef sizes, at::ScalarType type = at::kFloat) {
  return at::full(sizes, NAN, floats().dtype(type));
}
inline at::Tensor filled(const Shape5& s, at::ScalarType type, bool aligned = true) {
  const at::Tensor memory = at::randn({s.count() + 1}, floats()).to(type);
  return memory.slice(0, aligned ? 0 : 1, s.count() + (aligned ? 0 : 1)).view({s.n, s.z, s.y, s.x, s.c});
}
// As torch orders the axes, in double.
inline at::Tensor truth(const at::Tensor& memory) {
  return memory.to(at::kDouble).permute({0, 4, 1, 2, 3}).contiguous();
}
inline double error(const at::Tensor& ours, const at::Tensor& theirs) {
  const at::Tensor difference = ours.to(at::kDouble) - theirs;
  return (difference.norm() / (theirs.norm() + 1e-30)).item<double>();
}

// A norm layer with memory for everything that the kernels write.
struct Layer {
  explicit Layer(const Case& c) : on(c) {
    const Shape5& s = c.shape;
    x = filled(s, c.type, c.aligned) * 2 + 0.5;
    if (!c.aligned) x = filled(s, c.type, false);
    dy = filled(s, c.type);
    if (c.residual) residual = filled(s, c.type);
    if (c.affine) gamma = at::rand({s.c}, floats()) + 0.5, beta = at::randn({s.c}, floats());
    if (c.act == ActKind::kPrelu) slopes = at::rand({c.slope_per_channel ? s.c : 1}, floats());
    running_mean = at::randn({s.c}, floats());
    running_variance = at::rand({s.c}, floats()) + 0.5;
    state = poisoned({4, s.n, s.c});
    coefficients = poisoned({3, s.n, s.c});
    dgamma = poisoned({s.c}), dbeta = poisoned({s.c}), dslope = poisoned({c.slope_per_channel ? s.c : 1});
    y = poisoned(x.sizes(), c.type), dx = poisoned(x.sizes(), c.type), dresidual = poisoned(x.sizes(), c.type);
    moment_partials = poisoned({s.n, moment_rows(s), 3, s.c});
    grad_partials = poisoned({s.n, norm_grad_rows(s), c.act == ActKind::kPrelu ? 3 : 2, s.c});
  }

  static float* floats_of(const at::Tensor& t) { return t.defined() ? t.data_ptr<float>() : nullptr; }
  static void* data_of(const at::Tensor& t) { return t.defined() ? t.data_ptr() : nullptr; }
  Act act() const { return {on.act, 0.1f, floats_of(slopes), on.slope_per_channel}; }
  NormRule rule() const {
    NormRule rule{on.over, on.groups, 1e-5f, floats_of(gamma), floats_of(beta)};
    if (on.over == NormOver::kBatch && !on.frozen) {
      rule.running_mean = floats_of(running_mean);
      rule.running_variance = floats_of(running_variance);
    }
    return rule;
  }
  NormState norm_state() const {
    float* const memory = state.data_ptr<float>();
    const int64_t plane = on.shape.n * on.shape.c;
    return {memory, memory + plane, memory + 2 * plane, memory + 3 * plane};
  }
  void forward() const {
    const Scalar type = scalar_of(on.type);
    if (on.frozen) {
      state_from_running(floats_of(running_mean), floats_of(running_variance), on.shape, rule(), norm_state(), nullptr);
    } else {
      moments(x.data_ptr(), type, on.shape, floats_of(moment_partials), nullptr);
      finish_moments(floats_of(moment_partials), moment_rows(on.shape), on.shape, rule(), norm_state(), nullptr);
    }
    const NormState s = norm_state();
    apply_norm(x.data_ptr(), data_of(residual), y.data_ptr(), type, on.shape, s.scale, s.shift, act(), nullptr);
  }
  NormGradInput grad_input() const {
    return {dy.data_ptr(), x.data_ptr(), data_of(residual), scalar_of(on.type), on.shape, norm_state(), act()};
  }
  void backward() const {
    norm_grad_sums(grad_input(), floats_of(grad_partials), nullptr);
    finish_norm_grad(floats_of(grad_partials), norm_grad_rows(on.shape), grad_input(), rule(), on.frozen,
                     {floats_of(dgamma), floats_of(dbeta), floats_of(dslope), floats_of(coefficients)}, nullptr);
    norm_grad_apply(grad_input(), floats_of(coefficients), dx.data_ptr(), dresidual.data_ptr(), nullptr);
  }

  Case on;
  at::Tensor x, dy, residual, gamma, beta, slopes, running_mean, running_variance;
  at::Tensor state, coefficients, dgamma, dbeta, dslope, y, dx, dresidual, moment_partials, grad_partials;
};

inline at::Tensor normed(const Case& c, const at::Tensor& x, const at::Tensor& gamma, const at::Tensor& beta,
                         at::Tensor& running_mean, at::Tensor& running_variance) {
  switch (c.over) {
    case NormOver::kInstance:
      if (!c.frozen) return at::instance_norm(x, gamma, beta, {}, {}, true, 0.1, 1e-5, false);
      break;
    case NormOver::kGroup:
      return at::group_norm(x, c.groups, gamma, beta, 1e-5, false);
    case NormOver::kBatch:
      break;
  }
  return at::batch_norm(x, gamma, beta, running_mean, running_variance, !c.frozen, 0.1, 1e-5, false);
}

inline at::Tensor activated(const Case& c, const at::Tensor& z, const at::Tensor& slopes) {
  switch (c.act) {
    case ActKind::kNone:
      return z;
    case ActKind::kLeakyRelu:
      return at::leaky_relu(z, 0.1);
    case ActKind::kPrelu:
      return at::prelu(z, slopes);
    case ActKind::kGelu:
      return at::gelu(z);
    case ActKind::kElu:
      return at::elu(z);
    case ActKind::kSilu:
      return at::silu(z);
  }
  return {};
}

}  // namespace vox::cuda::testing_norm
