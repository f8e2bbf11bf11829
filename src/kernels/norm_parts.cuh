// Included by the .cu files of the norm: activations and their derivatives, and the choice of a kernel's variant.
#pragma once

#include "kernels/channels_cuda.cuh"
#include "kernels/norm_cuda.h"

namespace vox::cuda {

// Few variants, because each is compiled for every type: no activation is a slope of 1.
enum class ActForm { kSlope, kSlopes, kSmooth };

template <ActForm form, int W>
struct Activation {
  float slopes[form == ActForm::kSlopes ? W : 1];
  ActKind kind;

  __device__ __forceinline__ Activation(const Act& act, int channel) : kind(act.kind) {
    if constexpr (form == ActForm::kSlopes) {
#pragma unroll
      for (int i = 0; i < W; ++i) slopes[i] = act.slopes[act.slope_per_channel ? channel + i : 0];
    } else {
      slopes[0] = act.kind == ActKind::kNone ? 1.0f : act.slope;
    }
  }
  __device__ __forceinline__ float slope(int i) const { return slopes[form == ActForm::kSlopes ? i : 0]; }

  __device__ __forceinline__ float value(float z, int i) const {
    if constexpr (form != ActForm::kSmooth) return z > 0 ? z : z * slope(i);
    if (kind == ActKind::kGelu) return z * normal_below(z);
    if (kind == ActKind::kElu) return z > 0 ? z : expm1f(z);
    return z / (1 + __expf(-z));
  }
  // dy times the derivative at z.
  __device__ __forceinline__ float gradient(float dy, float z, int i) const {
    if constexpr (form != ActForm::kSmooth) return z > 0 ? dy : dy * slope(i);
    if (kind == ActKind::kGelu) {
      const float density = 0.3989422804014327f * __expf(-0.5f * z * z);
      return dy * (normal_below(z) + z * density);
    }
    if (kind == ActKind::kElu) return z > 0 ? dy : dy * __expf(z);
    const float sigmoid = 1 / (1 + __expf(-z));
    return dy * sigmoid * (1 + z * (1 - sigmoid));
  }

 private:
  static __device__ __forceinline__ float normal_below(float z) {
    return fmaf(0.5f, erff(0.7071067811865476f * z), 0.5f);
  }
};

// Calls f(T{}, width): 4 channels a thread in float32 and `halves` (4 or 8) in half precision where their number and
// the pointers (all of them `fit`) allow it, else one.
template <int halves, class F>
void dispatch_width(Scalar type, const Shape5& shape, bool fit, F&& f) {
  dispatch(type, [&](auto value) {
    constexpr int kWide = sizeof(value) == 4 ? 4 : halves;
    if (fit && shape.c % kWide == 0)
      f(value, std::integral_constant<int, kWide>{});
    else
      f(value, std::integral_constant<int, 1>{});
  });
}

template <class F>
void dispatch_form(ActKind kind, F&& f) {
  switch (kind) {
    case ActKind::kNone:
    case ActKind::kLeakyRelu:
      return f(std::integral_constant<ActForm, ActForm::kSlope>{});
    case ActKind::kPrelu:
      return f(std::integral_constant<ActForm, ActForm::kSlopes>{});
    case ActKind::kGelu:
    case ActKind::kElu:
    case ActKind::kSilu:
      return f(std::integral_constant<ActForm, ActForm::kSmooth>{});
  }
}

}  // namespace vox::cuda
