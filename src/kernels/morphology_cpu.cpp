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
  const uint64_t in_last = extent.x % 64 == 0 ? ~uint64_t{0} : (uint64_t{1} << (extent.x % 64)) - 1;
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

void complement(PaddedBits& bits) {
  const Extent3& extent = bits.extent();
  const uint64_t in_last = extent.x % 64 == 0 ? ~uint64_t{0} : (uint64_t{1} << (extent.x % 64)) - 1;
  for (int64_t z = 0; z < extent.z; ++z) {
    for (int64_t y = 0; y < extent.y; ++y) {
      uint64_t* row = bits.row(z, y);
      for (int64_t i = 0; i < bits.words(); ++i) row[i] = ~row[i];
      row[bits.words() - 1] &= in_last;
    }
  }
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
  complement(bits);
  bits = dilated(bits);
  complement(bits);
  bits.unpack(out);
}

}  // namespace vox
