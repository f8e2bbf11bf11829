// What a label volume holds: how often each value occurs, and for each value a list of voxels spread evenly over the
// volume. One pass, in parts of any size; the result depends on the voxels alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "base/dtype.h"

namespace vox {

class LabelScan {
 public:
  static constexpr int64_t kMostVoxels = 10000;  // kept for one value

  // `count` voxels that follow those added before; value = stored * scale + offset.
  void add(const std::byte* data, DType dtype, int64_t count, double scale, double offset);

  std::vector<std::pair<int64_t, int64_t>> counts() const;    // value, voxels; values 0 .. 255
  std::map<int64_t, std::vector<int64_t>> take_foreground();  // voxel numbers of every value but 0
  // Voxels whose value is no whole number from 0 to 255, and the first such value.
  int64_t bad_count() const { return bad_count_; }
  double first_bad_value() const { return first_bad_value_; }

 private:
  struct Kept {  // every stride-th occurrence; where the list is full, every other one is dropped
    std::vector<int64_t> voxels;
    int64_t stride = 1, seen = 0;
    void add(int64_t voxel);
  };
  template <class T>
  void add_typed(const T* data, int64_t count, double scale, double offset);

  std::array<int64_t, 256> counts_{};
  std::array<Kept, 256> kept_;
  int64_t done_ = 0, bad_count_ = 0;
  double first_bad_value_ = 0;
};

}  // namespace vox
