#include "io/zarr_types.h"

#include "base/error.h"
#include "base/text.h"

namespace vox::zarr {
namespace {

struct KnownType {
  const char *code, *name;
  ElementType element;
};
constexpr KnownType kTypes[] = {{"u1", "uint8", ElementType::kUInt8},     {"i1", "int8", ElementType::kInt8},
                                {"u2", "uint16", ElementType::kUInt16},   {"i2", "int16", ElementType::kInt16},
                                {"u4", "uint32", ElementType::kUInt32},   {"i4", "int32", ElementType::kInt32},
                                {"u8", "uint64", ElementType::kUInt64},   {"i8", "int64", ElementType::kInt64},
                                {"f2", "float16", ElementType::kFloat16}, {"f4", "float32", ElementType::kFloat32},
                                {"f8", "float64", ElementType::kFloat64}, {"b1", "bool", ElementType::kUInt8}};

[[noreturn]] void refuse(const std::string& name, const std::string& path) {
  throw Error(
      concat(path, ": the array has type ", name, "; a volume can be bool, an integer, float16, float32 or float64"));
}

}  // namespace

TypeName type_from_numpy(const std::string& name, const std::string& path) {
  for (const KnownType& known : kTypes) {
    if (name.size() != 3 || name.substr(1) != known.code || std::string("<>|=").find(name[0]) == std::string::npos)
      continue;
    return {known.element, name[0] == '>' && size_of(known.element) > 1};
  }
  refuse("\"" + printable(name) + "\"", path);
}

ElementType type_from_name(const std::string& json, const std::string& path) {
  for (const KnownType& known : kTypes)
    if (json == concat('"', known.name, '"')) return known.element;
  refuse(printable(json.substr(0, 60)), path);
}

std::string numpy_name(DType dtype) {
  for (const KnownType& known : kTypes)
    if (std::string(known.name) == name_of(dtype)) return (size_of(dtype) == 1 ? "|" : "<") + std::string(known.code);
  throw Error("internal error: a volume of type bfloat16", Fault::kBug);
}

}  // namespace vox::zarr
