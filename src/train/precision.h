// training.precision: what convolutions compute in. Masters, gradients, output layers and losses are float32 always.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace vox {

enum class Precision { k32, kTf32, k16Mixed, kBf16Mixed };

Precision parse_precision(const std::string& text);
at::ScalarType compute_type(Precision precision);

// Sets torch's switches (tf32).
void apply_precision(Precision precision);

}  // namespace vox
