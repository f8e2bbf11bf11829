// Boxes of an array that lies element by element in a file or in a packed stream, in any order of axes and either
// byte order: what NumPy and NIfTI files are once their headers are read.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "base/volume.h"
#include "io/byte_source.h"
#include "io/format.h"

namespace vox {

// As the element lies in the file. Types that volumes do not have are read as the nearest one that they do:
// bool as uint8, float16 as float32, 64-bit integers as 32-bit ones where every value read fits (Error where not).
enum class ElementType {
  kUInt8,
  kInt8,
  kUInt16,
  kInt16,
  kUInt32,
  kInt32,
  kUInt64,
  kInt64,
  kFloat16,
  kFloat32,
  kFloat64
};
int64_t size_of(ElementType type);
DType dtype_read_as(ElementType type);

struct RawLayout {
  ElementType type = ElementType::kUInt8;
  bool swap_bytes = false;                   // the file's byte order is not this machine's
  int64_t offset = 0;                        // of the first element, in unpacked bytes
  std::array<int64_t, 4> sizes{1, 1, 1, 1};  // channel, z, y, x
  std::array<int64_t, 4> strides{};          // likewise, in elements
};

// Strides of a dense array whose axes run from slowest to fastest as `order` says (numbers of channel, z, y, x).
std::array<int64_t, 4> dense_strides(const std::array<int64_t, 4>& sizes, const std::array<int, 4>& order);

// A row of elements in memory, `stride` elements apart, becomes dense values of dtype_read_as(type).
struct ElementRow {
  ElementType type = ElementType::kUInt8;
  bool swap_bytes = false;
  int64_t stride = 1, count = 0;
};
void convert_elements(const ElementRow& row, const std::byte* from, std::byte* to, const std::string& path);

class RawReader : public VolumeReader {
 public:
  // Takes extent, channels and dtype from `layout`, the rest from `info`. Error where the source cannot hold it.
  RawReader(std::unique_ptr<ByteSource> source, const RawLayout& layout, const VolumeInfo& info,
            const std::vector<std::string>& files = {});
  void read(const Box3& box, int64_t channel, std::byte* out, ThreadPool* pool) const override;

 private:
  std::unique_ptr<ByteSource> source_;
  RawLayout layout_;
  int64_t end_ = 0;  // of the array, in unpacked bytes
};

}  // namespace vox
