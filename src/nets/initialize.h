// Fresh weights: each number a pure function of (seed, parameter, element).
#pragma once

#include <cstdint>

namespace at {
class Tensor;
}

namespace vox {

struct DrawKey {
  uint64_t seed = 0, parameter = 0;
};
void fill_normal(at::Tensor& values, double deviation, const DrawKey& key);
void fill_uniform(at::Tensor& values, double bound, const DrawKey& key);  // within +-bound

}  // namespace vox
