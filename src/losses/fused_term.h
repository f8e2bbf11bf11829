// A term as the kernels that compute several of them in one pass see it.
#pragma once

#include <vector>

namespace vox {

struct FusedTerm {
  enum class Kind { kRegion, kBce, kCrossEntropy, kMae, kMaskedMae, kMse };
  Kind kind = Kind::kRegion;
  // Region: 1 - (I + smooth) / (I + alpha (P - I) + beta (T - I) + smooth), I = sum(p t), P = sum(p), T = sum(t).
  bool batch = false, background = false;
  double smooth = 0, alpha = 0.5, beta = 0.5;
  double pos_weight = 1, target_weight = 0;
  std::vector<double> class_weights = {};
};

}  // namespace vox
