// The safetensors format: eight bytes with the length of a JSON header, the header, then the tensors' bytes without
// holes. No torch here: names, types, shapes and bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"

namespace vox {

using Metadata = std::map<std::string, std::string>;

struct StoredTensor {
  std::string name;
  std::string dtype;  // as the format writes it: F32, BF16, F16, F64, I64, U8, ...
  std::vector<int64_t> shape;
  int64_t begin = 0;  // place of the first byte in the file
  int64_t bytes = 0;
};

// Size of one element; Error for a type that the format does not know, beginning with `what` (a tensor of a file).
int64_t safetensors_item_size(const std::string& dtype, const std::string& what);

// Checks the header against the size of the file, so that a cut file is noticed here and not by a strange tensor.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const fs::path& path);

  const Metadata& metadata() const { return metadata_; }
  const std::vector<StoredTensor>& tensors() const { return tensors_; }  // by their place in the file
  const StoredTensor* find(const std::string& name) const;               // null where absent
  const std::string& header() const { return header_; }                  // length and JSON, as they lie in the file
  void read(const StoredTensor& tensor, std::span<std::byte> out) const;
  const std::string& path() const { return file_.path(); }

 private:
  InputFile file_;
  std::string header_;
  Metadata metadata_;
  std::vector<StoredTensor> tensors_;
};

struct TensorToStore {
  std::string name, dtype;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;  // borrowed until the file is written
};

// The header as write_safetensors writes it. It depends on names, types and shapes alone, so that a checksum of it can
// be among the tensors.
std::string safetensors_header(const std::vector<TensorToStore>& tensors, const Metadata& metadata);

// Whole or not at all (base/file.h); tensors lie in the order given.
void write_safetensors(const fs::path& path, const std::vector<TensorToStore>& tensors, const Metadata& metadata);

}  // namespace vox
