#include "io/tiff_samples.h"

#include <bit>
#include <cstring>
#include <vector>

#include "base/error.h"

namespace vox::tiff {
namespace {

template <class Unsigned>
Unsigned byte_swapped(Unsigned value) {
  if constexpr (sizeof(Unsigned) == 2) return __builtin_bswap16(value);
  if constexpr (sizeof(Unsigned) == 4) return __builtin_bswap32(value);
  if constexpr (sizeof(Unsigned) == 8) return __builtin_bswap64(value);
  return value;
}

template <class Unsigned>
void swap_all(Unsigned* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) values[i] = byte_swapped(values[i]);
}

template <class Unsigned>
void sum_up(Unsigned* values, int64_t count) {
  Unsigned sum = 0;
  for (int64_t i = 0; i < count; ++i) values[i] = sum = static_cast<Unsigned>(sum + values[i]);
}

template <class Unsigned>
void differences(Unsigned* values, int64_t count) {
  for (int64_t i = count - 1; i > 0; --i) values[i] = static_cast<Unsigned>(values[i] - values[i - 1]);
}

// Predictor 3: the bytes of a row lie in planes, most significant first, whatever the file's byte order, and each is
// stored as the difference to the one before (Adobe, TIFF technical note 3).
template <class Unsigned>
void join_planes(std::byte* row, int64_t width, std::vector<uint8_t>& planes) {
  planes.resize(static_cast<size_t>(width) * sizeof(Unsigned));
  std::memcpy(planes.data(), row, planes.size());
  sum_up(planes.data(), static_cast<int64_t>(planes.size()));
  for (int64_t x = 0; x < width; ++x) {
    Unsigned value = 0;
    for (size_t plane = 0; plane < sizeof(Unsigned); ++plane)
      value = static_cast<Unsigned>((value << 8) | planes[plane * static_cast<size_t>(width) + static_cast<size_t>(x)]);
    std::memcpy(row + x * static_cast<int64_t>(sizeof(Unsigned)), &value, sizeof(Unsigned));
  }
}

template <class Function>
void with_unsigned(DType dtype, Function&& function) {  // predictors see bits, not numbers
  switch (size_of(dtype)) {
    case 1:
      return function(uint8_t{});
    case 2:
      return function(uint16_t{});
    case 4:
      return function(uint32_t{});
    case 8:
      return function(uint64_t{});
  }
  VOX_ASSERT(false);
}

}  // namespace

void finish_rows(std::byte* rows, int64_t count, const RowFormat& format) {
  with_unsigned(format.dtype, [&](auto zero) {
    using Unsigned = decltype(zero);
    if constexpr (sizeof(Unsigned) >= 4) {
      if (format.predictor == 3) {
        thread_local std::vector<uint8_t> planes;
        for (int64_t row = 0; row < count; ++row)
          join_planes<Unsigned>(rows + row * format.width * int64_t{sizeof(Unsigned)}, format.width, planes);
        return;
      }
    }
    auto* values = reinterpret_cast<Unsigned*>(rows);
    if (format.swapped && sizeof(Unsigned) > 1) swap_all(values, count * format.width);
    if (format.predictor != 2) return;
    for (int64_t row = 0; row < count; ++row) sum_up(values + row * format.width, format.width);
  });
}

void difference_rows(std::byte* rows, int64_t count, const RowFormat& format) {
  VOX_ASSERT(!format.swapped && format.predictor <= 2);
  if (format.predictor != 2) return;
  with_unsigned(format.dtype, [&](auto zero) {
    auto* values = reinterpret_cast<decltype(zero)*>(rows);
    for (int64_t row = 0; row < count; ++row) differences(values + row * format.width, format.width);
  });
}

}  // namespace vox::tiff
