// Rows of samples between a codec's bytes and voxels: byte order and predictors.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace vox::tiff {

struct RowFormat {
  DType dtype = DType::kUInt8;
  int64_t width = 0;  // samples in a row
  int predictor = 1;
  bool swapped = false;
};

// In place: what the codec gave becomes voxels of this machine.
void finish_rows(std::byte* rows, int64_t count, const RowFormat& format);

// In place, the other way, for predictors 1 and 2 in this machine's byte order.
void difference_rows(std::byte* rows, int64_t count, const RowFormat& format);

}  // namespace vox::tiff
