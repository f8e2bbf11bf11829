// Inner loops of the optimizers on the CPU: one pass over a piece of a parameter reads the gradient and writes weight,
// moments, average and shadow.
#pragma once

#include <cstdint>

namespace vox {

enum class ShadowType { kNone, kBFloat16, kFloat16 };

struct PieceArrays {
  float* weight = nullptr;
  const float* grad = nullptr;
  float* first = nullptr;  // momentum; null where the momentum is 0
  float* second = nullptr;
  float* largest = nullptr;  // null: no amsgrad
  float* average = nullptr;  // null: none
  uint16_t* shadow = nullptr;
  ShadowType shadow_type = ShadowType::kNone;
  int64_t count = 0;
};

struct SgdConstants {
  float grad_factor = 1, lr = 0, decay = 0, momentum = 0;
  bool nesterov = false;
};

struct AdamConstants {
  float grad_factor = 1;
  float shrink = 1;  // weight *= shrink (AdamW)
  float decay = 0;   // grad += decay * weight (Adam)
  float beta1 = 0, beta2 = 0;
  float step_size = 0;  // weight -= step_size * first / (sqrt(second) * root_factor + epsilon)
  float root_factor = 1, epsilon = 0;
};

void sgd_piece(const PieceArrays& arrays, const SgdConstants& constants);
void adam_piece(const PieceArrays& arrays, const AdamConstants& constants);
// average += share * (weight - average), then the shadow is written.
void finish_piece(const PieceArrays& arrays, float share);
double sum_of_squares(const float* values, int64_t count);

}  // namespace vox
