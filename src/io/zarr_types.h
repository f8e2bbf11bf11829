// Names of element types in Zarr metadata.
#pragma once

#include <string>

#include "io/raw_reader.h"

namespace vox::zarr {

struct TypeName {
  ElementType element = ElementType::kUInt8;
  bool big_endian = false;
};
TypeName type_from_numpy(const std::string& name, const std::string& path);    // "<f4", as version 2 has it
ElementType type_from_name(const std::string& json, const std::string& path);  // "\"float32\"", as version 3 has it
std::string numpy_name(DType dtype);

}  // namespace vox::zarr
