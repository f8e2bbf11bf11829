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

// While one lives, networks that this thread makes are left without drawn weights: for whoever asks for shapes alone.
class UndrawnWeights {
 public:
  UndrawnWeights();
  ~UndrawnWeights();
  UndrawnWeights(const UndrawnWeights&) = delete;
  UndrawnWeights& operator=(const UndrawnWeights&) = delete;

 private:
  bool before_;
};

}  // namespace vox
