// No error number from sqrt, and loops of any length in vectors: without these two the Adam loop is scalar.
#pragma GCC optimize("O3", "no-math-errno", "no-trapping-math")
#include "train/optimizer_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/dtype.h"

namespace vox {
namespace {

// IEEE half, round to nearest even; too large becomes infinity.
uint16_t to_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {  // subnormal: adding 0.5 leaves the rounded bits at the bottom
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0.5f)));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

template <bool kAmsgrad>
void adam_loop(const PieceArrays& a, const AdamConstants& c) {
  float* __restrict weight = a.weight;
  float* __restrict first = a.first;
  float* __restrict second = a.second;
  float* __restrict largest = a.largest;
  const float* __restrict grad = a.grad;
  for (int64_t i = 0; i < a.count; ++i) {
    const float w = weight[i] * c.shrink;
    const float g = grad[i] * c.grad_factor + c.decay * w;
    const float m = first[i] + (1 - c.beta1) * (g - first[i]);
    const float v = c.beta2 * second[i] + (1 - c.beta2) * g * g;
    float square = v;
    if constexpr (kAmsgrad) square = largest[i] = std::max(largest[i], v);
    first[i] = m;
    second[i] = v;
    weight[i] = w - c.step_size * (m / (std::sqrt(square) * c.root_factor + c.epsilon));
  }
}

}  // namespace

void adam_piece(const PieceArrays& arrays, const AdamConstants& constants) {
  arrays.largest ? adam_loop<true>(arrays, constants) : adam_loop<false>(arrays, constants);
}

void sgd_piece(const PieceArrays& a, const SgdConstants& c) {
  float* __restrict weight = a.weight;
  float* __restrict first = a.first;
  const float* __restrict grad = a.grad;
  if (first == nullptr) {
    for (int64_t i = 0; i < a.count; ++i) weight[i] -= c.lr * (grad[i] * c.grad_factor + c.decay * weight[i]);
    return;
  }
  const float old_share = c.nesterov ? 1.0f : 0.0f, new_share = c.nesterov ? c.momentum : 1.0f;
  for (int64_t i = 0; i < a.count; ++i) {
    const float g = grad[i] * c.grad_factor + c.decay * weight[i];
    const float m = c.momentum * first[i] + g;
    first[i] = m;
    weight[i] -= c.lr * (old_share * g + new_share * m);
  }
}

void finish_piece(const PieceArrays& a, float share) {
  if (a.average) {
    float* __restrict average = a.average;
    const float* __restrict weight = a.weight;
    for (int64_t i = 0; i < a.count; ++i) average[i] += share * (weight[i] - average[i]);
  }
  if (a.shadow_type == ShadowType::kBFloat16) {
    for (int64_t i = 0; i < a.count; ++i) a.shadow[i] = to_bfloat16(a.weight[i]).bits;
  } else if (a.shadow_type == ShadowType::kFloat16) {
    for (int64_t i = 0; i < a.count; ++i) a.shadow[i] = to_half(a.weight[i]);
  }
}

double sum_of_squares(const float* values, int64_t count) {
  constexpr int kLanes = 8;  // a fixed order of additions that vectors can follow
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += static_cast<double>(values[i + lane]) * values[i + lane];
  }
  for (; i < count; ++i) lanes[0] += static_cast<double>(values[i]) * values[i];
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

}  // namespace vox
