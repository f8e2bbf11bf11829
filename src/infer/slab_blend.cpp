#include "infer/slab_blend.h"

#include <torch/torch.h>

#include <limits>

#include "base/error.h"

namespace vox {
namespace {

at::Tensor part_of(const at::Tensor& tensor, int64_t z_axis, const Extent3& begin, const Extent3& size) {
  return tensor.narrow(z_axis, begin.z, size.z).narrow(z_axis + 1, begin.y, size.y).narrow(z_axis + 2, begin.x, size.x);
}

// Calls piece(slot, slices, first slice) for the one or two runs of slots that slices z_begin .. z_end lie in.
template <class Piece>
void each_run(int64_t slots, int64_t z_begin, int64_t z_end, const Piece& piece) {
  for (int64_t z = z_begin; z < z_end;) {
    const int64_t slot = z % slots, count = std::min(z_end - z, slots - slot);
    piece(slot, count, z);
    z += count;
  }
}

}  // namespace

SlabBlend::SlabBlend(const Extent3& volume, const Extent3& window, Blend blend, int64_t channels,
                     const at::Device& device)
    : volume_(volume), window_(window) {
  const int64_t slots = std::min(volume.z, window.z);
  std::vector<float> weights = blend_weights(window, blend);
  weights_ = at::from_blob(weights.data(), {window.z, window.y, window.x}, at::kFloat).clone().to(device);
  sum_ = at::zeros({channels, slots, volume.y, volume.x}, at::TensorOptions(device));
  weight_sum_ = at::zeros({slots, volume.y, volume.x}, at::TensorOptions(device));
}

void SlabBlend::add(const Extent3& begin, const at::Tensor& output) {
  const Box3 inside = intersect({begin, begin + window_}, whole(volume_));
  each_run(sum_.size(1), inside.begin.z, inside.end.z, [&](int64_t slot, int64_t count, int64_t z) {
    const Extent3 to{slot, inside.begin.y, inside.begin.x};
    const Extent3 from{z - begin.z, inside.begin.y - begin.y, inside.begin.x - begin.x};
    const Extent3 size{count, inside.extent().y, inside.extent().x};
    const at::Tensor weights = part_of(weights_, 0, from, size);
    part_of(sum_, 1, to, size).addcmul_(part_of(output, 1, from, size), weights);
    part_of(weight_sum_, 0, to, size).add_(weights);
  });
}

at::Tensor SlabBlend::take(int64_t z_begin, int64_t z_end) {
  at::Tensor mean = at::empty({sum_.size(0), z_end - z_begin, volume_.y, volume_.x}, sum_.options());
  each_run(sum_.size(1), z_begin, z_end, [&](int64_t slot, int64_t count, int64_t z) {
    at::Tensor out = mean.narrow(1, z - z_begin, count);
    const at::Tensor weight = weight_sum_.narrow(0, slot, count);
    at::div_out(out, sum_.narrow(1, slot, count), weight);
    const at::Tensor empty = weight.eq(0);
    if (!empty.any().item<bool>()) return;
    out.masked_fill_(empty, -std::numeric_limits<double>::infinity());
  });
  drop(z_begin, z_end);
  return mean;
}

void SlabBlend::drop(int64_t z_begin, int64_t z_end) {
  VOX_ASSERT(z_end - z_begin <= sum_.size(1));
  each_run(sum_.size(1), z_begin, z_end, [&](int64_t slot, int64_t count, int64_t) {
    sum_.narrow(1, slot, count).zero_();
    weight_sum_.narrow(0, slot, count).zero_();
  });
}

}  // namespace vox
