// A mask as bits with a border of zeros, so that the neighbours of any voxel can be read without asking where it lies.
// A word of zeros stands before and after each row: voxel x is bit x + 64 of its row.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/shape.h"
#include "kernels/bit_rows.h"

namespace vox {

class PaddedBits {
 public:
  explicit PaddedBits(const Extent3& extent)
      : extent_(extent),
        words_(words_for(extent.x)),
        bits_(static_cast<size_t>((extent.z + 2) * (extent.y + 2) * stride())) {}
  PaddedBits(const uint8_t* mask, const Extent3& extent) : PaddedBits(extent) {
    for (int64_t z = 0; z < extent.z; ++z)
      for (int64_t y = 0; y < extent.y; ++y) pack_row(row(z, y), mask + (z * extent.y + y) * extent.x, extent.x);
  }

  const Extent3& extent() const { return extent_; }
  int64_t words() const { return words_; }                      // of a row that hold voxels
  int64_t stride() const { return words_ + 2; }                 // words from row to row
  int64_t slice() const { return (extent_.y + 2) * stride(); }  // words from slice to slice
  uint64_t* row(int64_t z, int64_t y) { return bits_.data() + (z + 1) * slice() + (y + 1) * stride() + 1; }
  const uint64_t* row(int64_t z, int64_t y) const { return const_cast<PaddedBits*>(this)->row(z, y); }

  const uint64_t* data() const { return bits_.data(); }

  void complement() {
    const uint64_t in_last = ~uint64_t{0} >> (words_ * 64 - extent_.x);
    for (int64_t z = 0; z < extent_.z; ++z) {
      for (int64_t y = 0; y < extent_.y; ++y) {
        uint64_t* words = row(z, y);
        for (int64_t i = 0; i < words_; ++i) words[i] = ~words[i];
        words[words_ - 1] &= in_last;
      }
    }
  }
  void unpack(uint8_t* mask) const {
    std::fill_n(mask, extent_.voxels(), uint8_t{0});
    for (int64_t z = 0; z < extent_.z; ++z)
      for (int64_t y = 0; y < extent_.y; ++y, mask += extent_.x)
        for_each_bit(row(z, y), words_, [&](int64_t x) { mask[x] = 1; });
  }

  template <class Visit>
  static void for_each_bit(const uint64_t* words, int64_t count, Visit visit) {
    for (int64_t i = 0; i < count; ++i)
      for (uint64_t bits = words[i]; bits != 0; bits &= bits - 1) visit(i * 64 + std::countr_zero(bits));
  }

 private:
  Extent3 extent_;
  int64_t words_;
  std::vector<uint64_t> bits_;
};

// Bits x - 1, x and x + 1 of a padded row.
inline uint32_t three_bits(const uint64_t* row, int64_t x) {
  const int64_t first = x + 63;
  uint32_t bits;
  std::memcpy(&bits, reinterpret_cast<const uint8_t*>(row - 1) + first / 8, sizeof bits);
  return bits >> (first % 8) & 7;
}
// Of 64 voxels of a padded row: their neighbours at x - 1 and at x + 1.
inline uint64_t bits_before(const uint64_t* word) {
  return *word << 1 | word[-1] >> 63;
}
inline uint64_t bits_after(const uint64_t* word) {
  return *word >> 1 | word[1] << 63;
}

}  // namespace vox
