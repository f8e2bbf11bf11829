#include "base/error.h"
#include "base/file.h"
#include "train/step.h"

namespace vox {
namespace {

std::string npy_header(const BatchArray& array) {
  const bool bytes = size_of(array.dtype) == 1;
  const std::string type = concat(
      bytes ? "|" : "<", is_integer(array.dtype) ? (is_signed(array.dtype) ? "i" : "u") : "f", size_of(array.dtype));
  std::string shape;
  for (const int64_t size : array.shape) shape += concat(size, ", ");
  std::string text = concat("{'descr': '", type, "', 'fortran_order': False, 'shape': (", shape, "), }");
  text.append((64 - (text.size() + 11) % 64) % 64, ' ');
  text += '\n';
  const auto length = static_cast<uint16_t>(text.size());
  return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(length & 0xff) + static_cast<char>(length >> 8) + text;
}

}  // namespace

void export_batch(const Batch& batch, const std::string& folder) {
  for (const auto& [name, array] : batch.arrays) {
    VOX_CHECK(
        !array.channels_last && array.dtype != DType::kBFloat16,
        "--export-batches writes float32 in the order n, c, z, y, x: leave data.layout and data.patch_type alone");
    OutputFile file(fs::path(folder) / concat(batch.samples.front().sample, ".", name, ".npy"));
    file.write(npy_header(array));
    file.write(std::span<const std::byte>(array.data, static_cast<size_t>(array.bytes())));
    file.commit();
  }
}

}  // namespace vox
