// A file of named arrays of any shape, as weights come: PyTorch's and Keras's. Names, types and shapes first, bytes
// when they are asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace vox {

struct ArrayEntry {
  std::string name;
  std::string dtype;  // as safetensors writes it: F32, BF16, I64, ...
  std::vector<int64_t> shape;
  int64_t bytes = 0;
};

class ArrayFile {
 public:
  virtual ~ArrayFile() = default;
  virtual const std::string& path() const = 0;
  virtual const std::vector<ArrayEntry>& arrays() const = 0;  // in the order of the file
  // C order, little endian; out.size() is bytes of the entry.
  virtual void read(size_t index, std::span<std::byte> out) const = 0;
};

// A file of torch.save, zip or older: the state dict in it, wherever it stands (`state_dict`, `network_weights`,
// `model`, ...), or the one that `entry` names. Nothing in the file is executed (io/pickle.h).
std::unique_ptr<ArrayFile> open_torch_file(const std::filesystem::path& path, const std::string& entry = "");
// Keras's .h5 and .keras: each array by its place in the file ("layers/conv3d/vars/0"), layers in the order of the
// file's own list where it has one.
std::unique_ptr<ArrayFile> open_keras_file(const std::filesystem::path& path);

enum class ArrayFileKind { kNone, kTorch, kKeras };
ArrayFileKind array_file_kind(const std::filesystem::path& path);  // by what the file begins with and holds

struct ArrayToWrite {
  std::string name, dtype;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;  // borrowed until the file is written
};
// A state dict that torch.load(weights_only=True) reads; whole or not at all.
void write_torch_file(const std::filesystem::path& path, const std::vector<ArrayToWrite>& arrays);

}  // namespace vox
