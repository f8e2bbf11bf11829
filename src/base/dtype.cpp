#include "base/dtype.h"

#include <array>
#include <bit>
#include <cmath>

namespace vox {
namespace {

struct TypeFacts {
  DType dtype;
  const char* name;
  int64_t size;
  bool integer, is_signed;
};
constexpr std::array<TypeFacts, 9> kTypes{{{DType::kUInt8, "uint8", 1, true, false},
                                           {DType::kInt8, "int8", 1, true, true},
                                           {DType::kUInt16, "uint16", 2, true, false},
                                           {DType::kInt16, "int16", 2, true, true},
                                           {DType::kUInt32, "uint32", 4, true, false},
                                           {DType::kInt32, "int32", 4, true, true},
                                           {DType::kFloat32, "float32", 4, false, true},
                                           {DType::kFloat64, "float64", 8, false, true},
                                           {DType::kBFloat16, "bfloat16", 2, false, true}}};

const TypeFacts& facts(DType dtype) {
  return kTypes.at(static_cast<size_t>(dtype));
}

}  // namespace

BFloat16 to_bfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

float to_float(BFloat16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

int64_t size_of(DType dtype) {
  return facts(dtype).size;
}
const char* name_of(DType dtype) {
  return facts(dtype).name;
}
bool is_integer(DType dtype) {
  return facts(dtype).integer;
}
bool is_signed(DType dtype) {
  return facts(dtype).is_signed;
}

DType dtype_from_name(const std::string& name) {
  std::string known;
  for (const TypeFacts& type : kTypes) {
    if (name == type.name) return type.dtype;
    known += std::string(known.empty() ? "" : ", ") + type.name;
  }
  throw Error(concat("unknown type \"", name, "\"; known: ", known));
}

}  // namespace vox
