#include "train/precision.h"

#include <ATen/Context.h>

#include "base/error.h"

namespace vox {

Precision parse_precision(const std::string& text) {
  if (text == "32") return Precision::k32;
  if (text == "tf32") return Precision::kTf32;
  if (text == "16-mixed" || text == "amp") return Precision::k16Mixed;
  if (text == "bf16-mixed") return Precision::kBf16Mixed;
  throw Error(concat("training.precision: there is 32, tf32, 16-mixed and bf16-mixed, not \"", text, "\""));
}

at::ScalarType compute_type(Precision precision) {
  if (precision == Precision::k16Mixed) return at::kHalf;
  return precision == Precision::kBf16Mixed ? at::kBFloat16 : at::kFloat;
}

void apply_precision(Precision precision) {
  const bool tf32 = precision == Precision::kTf32;
  // In mixed precision the output layers alone are float32, and what they read was rounded further already.
  at::globalContext().setAllowTF32CuDNN(precision != Precision::k32);
  at::globalContext().setFloat32MatmulPrecision(tf32 ? "high" : "highest");
}

}  // namespace vox
