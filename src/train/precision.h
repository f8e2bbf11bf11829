// training.precision: what convolutions compute in. Masters, gradients, output layers and losses are float32 always.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace vox {

enum class Precision { k32, kTf32, k16Mixed, kBf16Mixed };

Precision parse_precision(const std::string& text);
at::ScalarType compute_type(Precision precision);

// Sets torch's switches (tf32) and, on a CPU, tries half precision in a child process first: some machines advertise
// instructions on which they die. Error is one sentence with what to do.
void apply_precision(Precision precision, const at::Device& device);

// Whether a convolution of this type survives on this CPU; the answer is kept. Empty: it does; else why not.
std::string probe_cpu_type(at::ScalarType type);

}  // namespace vox
