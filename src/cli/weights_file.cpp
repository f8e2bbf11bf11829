#include "cli/weights_file.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "base/text.h"

namespace vox::cli {
namespace {

OpenedWeights open_safetensors(const std::string& path) {
  const auto file = std::make_shared<const SafetensorsFile>(path);
  OpenedWeights opened{.tensors = {}, .source = source_of(file)};
  for (const StoredTensor& tensor : file->tensors()) {
    opened.tensors.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.bytes});
  }
  return opened;
}

at::Tensor read_array(const ArrayFile& file, size_t index) {
  const ArrayEntry& entry = file.arrays()[index];
  const std::string what = concat(file.path(), ": tensor \"", printable(entry.name), "\"");
  at::Tensor values = at::empty(entry.shape, scalar_type(entry.dtype, what));
  file.read(index, {static_cast<std::byte*>(values.data_ptr()), static_cast<size_t>(entry.bytes)});
  return values;
}

OpenedWeights open_arrays(std::unique_ptr<ArrayFile> owned) {
  const std::shared_ptr<const ArrayFile> file = std::move(owned);
  OpenedWeights opened{.tensors = file->arrays(), .source = {.path = file->path()}};
  std::map<std::string, size_t> index;
  for (size_t i = 0; i < file->arrays().size(); ++i) {
    opened.source.shapes[file->arrays()[i].name] = file->arrays()[i].shape;
    index[file->arrays()[i].name] = i;
  }
  opened.source.read = [file, index](const std::string& name) { return read_array(*file, index.at(name)); };
  return opened;
}

// What the name of a file promises though its bytes do not keep it.
std::string promised_format(const std::string& path) {
  for (const char* suffix : {".pt", ".pth", ".ckpt"})
    if (ends_with(path, suffix)) return "a PyTorch file (a zip archive that torch.save wrote)";
  for (const char* suffix : {".h5", ".hdf5", ".keras"})
    if (ends_with(path, suffix)) return "a Keras file (HDF5)";
  return "";
}

}  // namespace

OpenedWeights open_weights(const std::string& path, const std::string& entry, KerasNames names) {
  switch (array_file_kind(path)) {
    case ArrayFileKind::kTorch:
      return open_arrays(open_torch_file(path, entry));
    case ArrayFileKind::kKeras: {
      OpenedWeights opened = open_arrays(open_keras_file(path));
      if (names == KerasNames::kTorch) opened.source = from_keras(opened.source);
      return opened;
    }
    case ArrayFileKind::kNone:
      break;
  }
  VOX_CHECK(entry.empty(), path, " is no PyTorch file, so that --entry says nothing");
  try {
    return open_safetensors(path);
  } catch (const Error& error) {
    const std::string promised = promised_format(path);
    if (promised.empty() || error.fault() != Fault::kInput) throw;
    throw Error(concat(path, " is neither what its name promises, ", promised, ", nor safetensors: ", error.what()));
  }
}

}  // namespace vox::cli
