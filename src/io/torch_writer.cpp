// A state dict as torch.save writes it: an OrderedDict of tensors, each with a storage of its own.
#include <map>

#include "base/error.h"
#include "io/array_file.h"
#include "io/torch_types.h"
#include "io/zip_archive.h"

namespace vox {
namespace {

constexpr int64_t kAlignment = 64;  // as PyTorch writes, so that the file can be mapped

// Protocol 2. Nothing is memoised but for text and names that would come again and again.
class PickleWriter {
 public:
  PickleWriter() { bytes_ = "\x80\x02"; }

  void raw(const std::string& bytes) { bytes_ += bytes; }
  void text(const std::string& text) {
    bytes_ += 'X';
    little(static_cast<uint32_t>(text.size()));
    bytes_ += text;
  }
  void global(const std::string& module, const std::string& name) { bytes_ += "c" + module + "\n" + name + "\n"; }
  void integer(int64_t value) {
    if (value >= 0 && value < 256) {
      bytes_ += 'K';
      bytes_ += static_cast<char>(value);
    } else if (value >= INT32_MIN && value <= INT32_MAX) {
      bytes_ += 'J';
      little(static_cast<int32_t>(value));
    } else {
      bytes_ += "\x8a\x08";
      little(value);
    }
  }
  void tuple(const std::vector<int64_t>& values) {
    bytes_ += '(';
    for (const int64_t value : values) integer(value);
    bytes_ += 't';
  }
  const std::string& bytes() const { return bytes_; }

 private:
  template <class T>
  void little(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  std::string bytes_;
};

std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> stride(shape.size(), 1);
  for (size_t axis = shape.size(); axis > 1; --axis) {
    stride[axis - 2] = stride[axis - 1] * std::max<int64_t>(1, shape[axis - 1]);
  }
  return stride;
}

const TorchType& type_of(const ArrayToWrite& array, const fs::path& path) {
  const TorchType* type = torch_type_named(array.dtype);
  VOX_CHECK(type != nullptr && type->storage != nullptr, path.string(), ": tensor \"", array.name, "\" of type ",
            array.dtype, " cannot be written to a .pt file; write .safetensors instead");
  return *type;
}

void add_tensor(PickleWriter& pickle, const ArrayToWrite& array, const TorchType& type, size_t number) {
  pickle.text(array.name);
  pickle.global("torch._utils", "_rebuild_tensor_v2");
  pickle.raw("((");
  pickle.text("storage");
  pickle.global("torch", type.storage);
  pickle.text(std::to_string(number));
  pickle.text("cpu");
  pickle.integer(static_cast<int64_t>(array.bytes.size()) / type.bytes);
  pickle.raw("tQ");
  pickle.integer(0);
  pickle.tuple(array.shape);
  pickle.tuple(contiguous_strides(array.shape));
  pickle.raw("\x89");  // requires no gradient
  pickle.global("collections", "OrderedDict");
  pickle.raw(")RtR");  // no hooks
}

// Arrays that share their bytes share a storage.
size_t storage_of(const ArrayToWrite& array, const std::vector<ArrayToWrite>& arrays, std::vector<size_t>& storages) {
  for (size_t i = storages.size(); i > 0; --i) {
    const std::span<const std::byte> other = arrays[storages[i - 1]].bytes;
    if (other.data() == array.bytes.data() && other.size() == array.bytes.size() && !other.empty()) return i - 1;
  }
  storages.push_back(static_cast<size_t>(&array - arrays.data()));
  return storages.size() - 1;
}

}  // namespace

void write_torch_file(const fs::path& path, const std::vector<ArrayToWrite>& arrays) {
  PickleWriter pickle;
  pickle.global("collections", "OrderedDict");
  pickle.raw(")R(");
  std::vector<size_t> storages;  // of each number, the first array that has these bytes
  for (const ArrayToWrite& array : arrays) {
    add_tensor(pickle, array, type_of(array, path), storage_of(array, arrays, storages));
  }
  pickle.raw("u.");
  const auto bytes_of = [](const std::string& text) { return std::as_bytes(std::span(text)); };
  const std::string folder = path.stem().string() + "/", version = "3\n", order = "little";
  OutputFile file(path);
  ZipWriter archive(file);
  archive.add(folder + "data.pkl", bytes_of(pickle.bytes()), kAlignment);
  archive.add(folder + "byteorder", bytes_of(order), kAlignment);
  for (size_t i = 0; i < storages.size(); ++i) {
    archive.add(folder + "data/" + std::to_string(i), arrays[storages[i]].bytes, kAlignment);
  }
  archive.add(folder + "version", bytes_of(version), kAlignment);
  archive.finish();
  file.commit();
}

}  // namespace vox
