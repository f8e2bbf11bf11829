#include "ops/epilogue.h"

#include <torch/torch.h>

#include "base/error.h"
#include "base/random.h"
#include "ops/parallel.h"

namespace vox::ops {
namespace {

constexpr int64_t kFoursInPiece = 1 << 14;

void fill_channels(const Dropout& dropout, at::Tensor& mask, float kept) {
  float* value = mask.data_ptr<float>();
  for (int64_t n = 0; n < mask.size(0); ++n) {
    Random random(dropout.seed, static_cast<uint64_t>(dropout.first_sample + n),
                  kDropoutStream + static_cast<uint32_t>(dropout.layer));
    for (int64_t c = 0; c < mask.size(1); ++c) *value++ = random.chance(dropout.rate) ? 0.0f : kept;
  }
}

// Element i of a sample is number i of its own stream, so that threads may begin anywhere.
void fill_elements(const Dropout& dropout, at::Tensor& mask, float kept) {
  const int64_t per_sample = mask.numel() / std::max<int64_t>(1, mask.size(0));
  const uint64_t stream = static_cast<uint64_t>(kDropoutStream + static_cast<uint32_t>(dropout.layer)) << 32;
  const auto limit = static_cast<uint64_t>(dropout.rate * 4294967296.0);
  for (int64_t n = 0; n < mask.size(0); ++n) {
    float* const values = mask.data_ptr<float>() + n * per_sample;
    const auto sample = static_cast<uint64_t>(dropout.first_sample + n);
    const int64_t fours = (per_sample + 3) / 4;
    for_each_piece((fours + kFoursInPiece - 1) / kFoursInPiece, [&](int64_t piece) {
      const int64_t end = std::min(fours, (piece + 1) * kFoursInPiece);
      for (int64_t four = piece * kFoursInPiece; four < end; ++four) {
        const Philox4 bits = philox(dropout.seed, sample, stream | static_cast<uint64_t>(four));
        for (int64_t i = 4 * four; i < std::min(per_sample, 4 * four + 4); ++i)
          values[i] = bits.v[i & 3] < limit ? 0.0f : kept;
      }
    });
  }
}

}  // namespace

at::Tensor dropout_mask(const Dropout& dropout, const at::Tensor& like) {
  std::vector<int64_t> shape = like.sizes().vec();
  if (!dropout.elements) std::fill(shape.begin() + 2, shape.end(), 1);
  at::Tensor mask = at::empty(shape, at::kFloat);
  const auto kept = static_cast<float>(1 / (1 - dropout.rate));
  dropout.elements ? fill_elements(dropout, mask, kept) : fill_channels(dropout, mask, kept);
  return mask;
}

}  // namespace vox::ops
