#include "nets/initialize.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "base/random.h"

namespace vox {
namespace {

template <class FromBits>
void fill(at::Tensor& tensor, const DrawKey& key, FromBits from_bits) {
  const int64_t count = tensor.numel();
  float* const values = tensor.data_ptr<float>();
  at::parallel_for(0, (count + 3) / 4, 1 << 14, [&](int64_t begin, int64_t end) {
    for (int64_t four = begin; four < end; ++four) {
      const Philox4 bits =
          philox(key.seed, key.parameter, (static_cast<uint64_t>(kWeightStream) << 32) | static_cast<uint64_t>(four));
      for (int64_t i = 4 * four; i < std::min(count, 4 * four + 4); ++i) values[i] = from_bits(bits.v[i & 3]);
    }
  });
}

}  // namespace

void fill_normal(at::Tensor& values, double deviation, const DrawKey& key) {
  fill(values, key, [&](uint32_t bits) { return static_cast<float>(deviation * normal_from_bits(bits)); });
}

void fill_uniform(at::Tensor& values, double bound, const DrawKey& key) {
  fill(values, key, [&](uint32_t bits) { return static_cast<float>(bound * (2 * (bits + 0.5) / 4294967296.0 - 1)); });
}

}  // namespace vox
