// 64 voxels at a time from bits. Erosion is dilation of the complement within the volume.
#include "kernels/morphology.h"

#include <utility>

#include "kernels/padded_bits.h"

namespace vox {
namespace {

PaddedBits dilated(const PaddedBits& in) {
  const Extent3& extent = in.extent();
  PaddedBits out(extent);
  const int64_t stride = in.stride(), slice = in.slice();
  const uint64_t in_last = ~uint64_t{0} >> (in.words() * 64 - extent.x);
  for (int64_t z = 0; z < extent.z; ++z) {
    for (int64_t y = 0; y < extent.y; ++y) {
      const uint64_t* from = in.row(z, y);
      uint64_t* to = out.row(z, y);
      for (int64_t i = 0; i < in.words(); ++i, ++from)
        to[i] =
            *from | bits_before(from) | bits_after(from) | from[-stride] | from[stride] | from[-slice] | from[slice];
      to[in.words() - 1] &= in_last;
    }
  }
  return out;
}

}  // namespace

void dilate_cpu(uint8_t* out, const uint8_t* mask, const Extent3& extent, int times) {
  if (extent.voxels() == 0) return;
  PaddedBits bits(mask, extent);
  for (int i = 0; i < times; ++i) bits = dilated(bits);
  bits.unpack(out);
}

void close_cpu(uint8_t* out, const uint8_t* mask, const Extent3& extent) {
  if (extent.voxels() == 0) return;
  PaddedBits bits = dilated(PaddedBits(mask, extent));
  bits.complement();
  bits = dilated(bits);
  bits.complement();
  bits.unpack(out);
}

}  // namespace vox
