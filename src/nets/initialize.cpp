#include "nets/initialize.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "base/random.h"
#include "base/thread_pool.h"

namespace vox {
namespace {

thread_local bool undrawn = false;

constexpr int64_t kPiece = 1 << 16;  // groups of four

// Every value depends on its place alone, so that threads may take any piece.
template <class FromBits>
void fill(at::Tensor& tensor, const DrawKey& key, FromBits from_bits) {
  if (undrawn) return;
  const int64_t count = tensor.numel();
  float* const values = tensor.data_ptr<float>();
  const int64_t fours = (count + 3) / 4, pieces = (fours + kPiece - 1) / kPiece;
  ThreadPool pool(static_cast<int>(std::clamp<int64_t>(pieces, 1, available_cpus())));
  pool.for_each(pieces, [&](int64_t piece) {
    for (int64_t four = piece * kPiece; four < std::min(fours, (piece + 1) * kPiece); ++four) {
      const Philox4 bits =
          philox(key.seed, key.parameter, (static_cast<uint64_t>(kWeightStream) << 32) | static_cast<uint64_t>(four));
      for (int64_t i = 4 * four; i < std::min(count, 4 * four + 4); ++i) values[i] = from_bits(bits.v[i & 3]);
    }
  });
}

}  // namespace

UndrawnWeights::UndrawnWeights() : before_(std::exchange(undrawn, true)) {}

UndrawnWeights::~UndrawnWeights() {
  undrawn = before_;
}

void fill_normal(at::Tensor& values, double deviation, const DrawKey& key) {
  fill(values, key, [&](uint32_t bits) { return static_cast<float>(deviation * normal_from_bits(bits)); });
}

void fill_uniform(at::Tensor& values, double bound, const DrawKey& key) {
  fill(values, key, [&](uint32_t bits) { return static_cast<float>(bound * (2 * (bits + 0.5) / 4294967296.0 - 1)); });
}

}  // namespace vox
