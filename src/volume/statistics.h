// Mean, spread and range of many values, computed in parts that merge exactly (Chan, Golub, LeVeque 1979).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/dtype.h"

namespace vox {

struct Moments {
  int64_t count = 0;
  double mean = 0, m2 = 0;  // m2: sum of squared differences from the mean
  double minimum = std::numeric_limits<double>::infinity(), maximum = -std::numeric_limits<double>::infinity();
  int64_t not_finite = 0;        // NaN or infinite; left out of all the above
  int64_t first_not_finite = 0;  // index of the first of them

  double variance() const { return count > 0 ? m2 / static_cast<double>(count) : 0; }
  double deviation() const;
  void merge(const Moments& other, int64_t index_offset = 0);
  Moments mapped(double scale, double offset) const;  // of value * scale + offset
};

// Of `count` stored values; the second leaves out those equal to `left_out` (the background of a masked image).
Moments moments_of(const std::byte* data, DType dtype, int64_t count);
Moments moments_without(const std::byte* data, DType dtype, int64_t count, double left_out);

}  // namespace vox
