#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "kernels/neighbourhood.h"
#include "kernels/soft_thinning.h"

namespace vox {
namespace {

using neighbourhood::kCorners, neighbourhood::kFaces, neighbourhood::kMiddleBit;

constexpr int kSubfields = 8;
constexpr uint32_t kEdgesAndFaces =
    kCorners & ~(1u << 0 | 1u << 2 | 1u << 6 | 1u << 8 | 1u << 18 | 1u << 20 | 1u << 24 | 1u << 26);

bool is_simple(uint32_t around) {
  const uint32_t object = around & kCorners;
  if (neighbourhood::connected_by_corners(object & (0 - object), object) != object || object == 0) return false;
  const uint32_t background = ~around & kEdgesAndFaces, beside = background & kFaces;
  const uint32_t reached = neighbourhood::connected_by_faces(beside & (0 - beside), background);
  return beside != 0 && (reached & kFaces) == beside;
}

// By its neighbours now, and those beside it when the iteration began.
bool may_go(uint32_t around, uint32_t beside_at_first) {
  return beside_at_first != kFaces && std::popcount(around & kCorners) != 1 && is_simple(around);
}

// The states of a mask while it is thinned, in a frame of background, read from the numbers of those that took voxels.
class History {
 public:
  explicit History(const Extent3& extent)
      : extent_(extent),
        row_(extent.x + 2),
        slice_((extent.y + 2) * row_),
        taken_(static_cast<size_t>((extent.z + 2) * slice_), kNeverInside) {
    for (int bit = 0; bit < 27; ++bit) offsets_[bit] = (bit / 9 - 1) * slice_ + (bit / 3 % 3 - 1) * row_ + bit % 3 - 1;
  }

  int64_t place(int64_t z, int64_t y, int64_t x) const { return (z + 1) * slice_ + (y + 1) * row_ + x + 1; }
  int64_t neighbour(int64_t place, int bit) const { return place + offsets_[bit]; }
  int16_t& taken(int64_t place) { return taken_[static_cast<size_t>(place)]; }
  int64_t places() const { return static_cast<int64_t>(taken_.size()); }

  // Before subfield number `now`, counted over all iterations.
  bool inside(int64_t place, int now) const { return taken_[static_cast<size_t>(place)] >= now; }
  uint32_t around(int64_t place, int now, uint32_t wanted = kCorners) const {
    uint32_t bits = 0;
    for (uint32_t left = wanted; left != 0; left &= left - 1) {
      const int bit = std::countr_zero(left);
      if (inside(place + offsets_[bit], now)) bits |= 1u << bit;
    }
    return bits;
  }
  uint32_t beside_at_first(int64_t place, int now) const {
    return around(place, now / kSubfields * kSubfields, kFaces);
  }

  template <class Visit>
  void for_each_of_subfield(int now, const Visit& visit) const {
    const int field = now % kSubfields;
    for (int64_t z = field >> 2; z < extent_.z; z += 2)
      for (int64_t y = field >> 1 & 1; y < extent_.y; y += 2)
        for (int64_t x = field & 1; x < extent_.x; x += 2) visit(place(z, y, x));
  }
  template <class Visit>
  void for_each_voxel(const Visit& visit) const {
    int64_t voxel = 0;
    for (int64_t z = 0; z < extent_.z; ++z)
      for (int64_t y = 0; y < extent_.y; ++y)
        for (int64_t x = 0; x < extent_.x; ++x) visit(voxel++, place(z, y, x));
  }

 private:
  const Extent3 extent_;
  const int64_t row_, slice_;
  int64_t offsets_[27];
  std::vector<int16_t> taken_;
};

// Through x(v) (1 - s(v)) at a voxel: to itself, to its neighbours now, and to those beside it at first.
void flow_back(std::vector<double>& grad, std::vector<double>& grad_at_first, const History& history, int64_t place,
               int now) {
  const double given = grad[static_cast<size_t>(place)];
  if (given == 0) return;
  const uint32_t around = history.around(place, now), beside = history.beside_at_first(place, now);
  const bool goes = may_go(around, beside);
  if (goes) grad[static_cast<size_t>(place)] = 0;
  if (!history.inside(place, now)) return;
  const auto pass = [&](std::vector<double>& to, int bit, uint32_t bits, bool goes_otherwise) {
    if (goes == goes_otherwise) return;
    const bool set = bits >> bit & 1;
    const double slope = (set ? goes : goes_otherwise) ? 1.0 : -1.0;  // s with the neighbour less s without it
    to[static_cast<size_t>(history.neighbour(place, bit))] -= given * slope;
  };
  for (uint32_t left = kCorners; left != 0; left &= left - 1) {
    const int bit = std::countr_zero(left);
    pass(grad, bit, around, may_go(around ^ 1u << bit, beside));
    if (kFaces >> bit & 1) pass(grad_at_first, bit, beside, may_go(around, beside ^ 1u << bit));
  }
}

void check(const Extent3& extent, int iterations) {
  VOX_ASSERT(extent.voxels() >= 0 && iterations >= 0 && iterations * kSubfields < kNeverTaken);
}

double logit_noise(const SoftThinningOptions& options, int64_t voxel) {
  if (options.noise == 0) return 0;
  const uint64_t counter = static_cast<uint64_t>(voxel);
  const uint32_t bits = philox(options.seed, static_cast<uint64_t>(options.volume), counter).v[0];
  const double uniform = (static_cast<double>(bits) + 0.5) * 0x1p-32;
  return options.noise * std::log(uniform / (1 - uniform));
}

constexpr double kLeast = 1e-6;  // of a probability and of its complement

double noisy(double probability, const SoftThinningOptions& options, int64_t voxel) {
  const double p = std::clamp(probability, kLeast, 1 - kLeast);
  return 1 / (1 + (1 - p) / p * std::exp(-logit_noise(options, voxel)));
}

}  // namespace

void thin_by_subfields_cpu(int16_t* taken, const uint8_t* mask, const Extent3& extent, int iterations) {
  check(extent, iterations);
  History history(extent);
  history.for_each_voxel(
      [&](int64_t voxel, int64_t place) { history.taken(place) = mask[voxel] != 0 ? kNeverTaken : kNeverInside; });
  for (int now = 0; now < iterations * kSubfields; ++now)
    history.for_each_of_subfield(now, [&](int64_t place) {
      if (!history.inside(place, now)) return;
      if (may_go(history.around(place, now), history.beside_at_first(place, now)))
        history.taken(place) = static_cast<int16_t>(now);
    });
  history.for_each_voxel([&](int64_t voxel, int64_t place) { taken[voxel] = history.taken(place); });
}

void thin_by_subfields_backward_cpu(double* grad, const int16_t* taken, const Extent3& extent, int iterations) {
  check(extent, iterations);
  History history(extent);
  std::vector<double> flowing(static_cast<size_t>(history.places()), 0.0), at_first(flowing);
  history.for_each_voxel([&](int64_t voxel, int64_t place) {
    history.taken(place) = taken[voxel];
    flowing[static_cast<size_t>(place)] = grad[voxel];
  });
  for (int now = iterations * kSubfields - 1; now >= 0; --now) {
    history.for_each_of_subfield(now, [&](int64_t place) { flow_back(flowing, at_first, history, place, now); });
    if (now % kSubfields != 0) continue;
    for (size_t i = 0; i < flowing.size(); ++i) flowing[i] += at_first[i];
    std::fill(at_first.begin(), at_first.end(), 0.0);
  }
  history.for_each_voxel([&](int64_t voxel, int64_t place) { grad[voxel] = flowing[static_cast<size_t>(place)]; });
}

template <class T>
void soft_thinning_cpu(T* out, int16_t* taken, const T* in, const Extent3& extent, const SoftThinningOptions& options) {
  const auto voxels = static_cast<size_t>(extent.voxels());
  std::vector<uint8_t> mask(voxels);
  for (size_t i = 0; i < voxels; ++i)
    mask[i] = noisy(static_cast<double>(in[i]), options, static_cast<int64_t>(i)) > 0.5 ? 1 : 0;
  thin_by_subfields_cpu(taken, mask.data(), extent, options.iterations);
  for (size_t i = 0; i < voxels; ++i) out[i] = taken[i] == kNeverTaken ? T{1} : T{0};
}

template <class T>
void soft_thinning_backward_cpu(T* grad_in, const T* grad_out, const int16_t* taken, const T* in, const Extent3& extent,
                                const SoftThinningOptions& options) {
  const auto voxels = static_cast<size_t>(extent.voxels());
  std::vector<double> grad(grad_out, grad_out + voxels);
  thin_by_subfields_backward_cpu(grad.data(), taken, extent, options.iterations);
  for (size_t i = 0; i < voxels; ++i) {
    const double p = std::clamp(static_cast<double>(in[i]), kLeast, 1 - kLeast);
    const double rounded = noisy(static_cast<double>(in[i]), options, static_cast<int64_t>(i));
    grad_in[i] = static_cast<T>(grad[i] * rounded * (1 - rounded) / (p * (1 - p)));
  }
}

#define VOX_INSTANTIATE(T)                                                                             \
  template void soft_thinning_cpu(T*, int16_t*, const T*, const Extent3&, const SoftThinningOptions&); \
  template void soft_thinning_backward_cpu(T*, const T*, const int16_t*, const T*, const Extent3&,     \
                                           const SoftThinningOptions&);
VOX_INSTANTIATE(float)
VOX_INSTANTIATE(double)
#undef VOX_INSTANTIATE

}  // namespace vox
