// The types a volume can be stored in, and the step from a run-time type to a compile-time one.
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"

namespace vox {

enum class DType : uint8_t { kUInt8, kInt8, kUInt16, kInt16, kUInt32, kInt32, kFloat32, kFloat64, kBFloat16 };

// Storage only; arithmetic happens in float32.
struct BFloat16 {
  uint16_t bits = 0;
};
BFloat16 to_bfloat16(float value);  // round to nearest even; NaN stays NaN
float to_float(BFloat16 value);

int64_t size_of(DType dtype);
const char* name_of(DType dtype);           // "uint8", "float32", ... as NumPy says
DType dtype_from_name(const std::string&);  // Error lists the known names
bool is_integer(DType dtype);
bool is_signed(DType dtype);

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, uint8_t>)
    return DType::kUInt8;
  else if constexpr (std::is_same_v<T, int8_t>)
    return DType::kInt8;
  else if constexpr (std::is_same_v<T, uint16_t>)
    return DType::kUInt16;
  else if constexpr (std::is_same_v<T, int16_t>)
    return DType::kInt16;
  else if constexpr (std::is_same_v<T, uint32_t>)
    return DType::kUInt32;
  else if constexpr (std::is_same_v<T, int32_t>)
    return DType::kInt32;
  else if constexpr (std::is_same_v<T, float>)
    return DType::kFloat32;
  else if constexpr (std::is_same_v<T, double>)
    return DType::kFloat64;
  else {
    static_assert(std::is_same_v<T, BFloat16>, "a type that volumes are not stored in");
    return DType::kBFloat16;
  }
}

// Calls function(T{}) with the C++ type that `dtype` names. Volumes on disk are never bfloat16: that type is for
// batches alone, and here it is a bug.
template <class Function>
decltype(auto) with_type(DType dtype, Function&& function) {
  switch (dtype) {
    case DType::kUInt8:
      return function(uint8_t{});
    case DType::kInt8:
      return function(int8_t{});
    case DType::kUInt16:
      return function(uint16_t{});
    case DType::kInt16:
      return function(int16_t{});
    case DType::kUInt32:
      return function(uint32_t{});
    case DType::kInt32:
      return function(int32_t{});
    case DType::kFloat32:
      return function(float{});
    case DType::kFloat64:
      return function(double{});
    case DType::kBFloat16:
      break;
  }
  throw Error("internal error: a volume of type bfloat16", Fault::kBug);
}

}  // namespace vox
