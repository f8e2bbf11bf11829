#include "nets/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/shallow_json.h"
#include "base/text.h"

namespace vox {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kLargestHeader = 100'000'000;  // the format's own limit

int64_t byte_count(const std::string& dtype, const std::vector<int64_t>& shape, const std::string& what) {
  int64_t count = safetensors_item_size(dtype, what);
  for (const int64_t size : shape) {
    VOX_CHECK(size >= 0 && !__builtin_mul_overflow(count, size, &count), what, " has an impossible shape");
  }
  return count;
}

StoredTensor parse_tensor(const std::string& name, const Json& entry, const std::string& path, int64_t data_begin) {
  const std::string what = concat(path, ": tensor \"", printable(name), "\"");
  StoredTensor tensor;
  tensor.name = name;
  int64_t begin = 0, end = 0;
  try {
    tensor.dtype = entry.at("dtype").get<std::string>();
    tensor.shape = entry.at("shape").get<std::vector<int64_t>>();
    begin = entry.at("data_offsets").at(0).get<int64_t>();
    end = entry.at("data_offsets").at(1).get<int64_t>();
  } catch (const Json::exception&) {
    throw Error(concat(what, " has no dtype, shape or data_offsets; the file is damaged or no safetensors file"));
  }
  tensor.bytes = byte_count(tensor.dtype, tensor.shape, what);
  VOX_CHECK(begin >= 0 && end >= begin && end - begin == tensor.bytes, what, " should take ", tensor.bytes,
            " bytes but its offsets are ", begin, " to ", end, "; the file is damaged");
  tensor.begin = data_begin + begin;
  return tensor;
}

std::string read_header(const InputFile& file) {
  VOX_CHECK(file.size() >= kLengthBytes, file.path(), " has ", file.size(), " bytes: too short for safetensors");
  uint64_t length = 0;
  file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  const bool foreign = std::memcmp(&length, "PK\3\4", 4) == 0 || std::memcmp(&length, "\x89HDF\r\n\x1a\n", 8) == 0;
  VOX_CHECK(!foreign, file.path(),
            " is no safetensors file, but one of PyTorch or Keras as it seems; `voxloom weights ", "import ",
            file.path(), "` makes one of it");
  VOX_CHECK(length <= static_cast<uint64_t>(std::min(kLargestHeader, file.size() - kLengthBytes)), file.path(),
            ": the header says it has ", length, " bytes but the file has ", file.size(),
            "; it is cut, or no safetensors file");
  std::string header(static_cast<size_t>(kLengthBytes) + length, '\0');
  file.read(0, std::as_writable_bytes(std::span(header)));
  return header;
}

void require_no_holes(const std::vector<StoredTensor>& tensors, const InputFile& file, int64_t data_begin) {
  int64_t expected = data_begin;
  for (const StoredTensor& tensor : tensors) {
    VOX_CHECK(tensor.begin == expected, file.path(), ": tensor \"", printable(tensor.name), "\" begins at byte ",
              tensor.begin, " but the one before ends at ", expected, "; the file is damaged");
    expected += tensor.bytes;
  }
  VOX_CHECK(expected == file.size(), file.path(), ": the header describes ", expected, " bytes but the file has ",
            file.size(), "; it is cut or damaged");
}

}  // namespace

int64_t safetensors_item_size(const std::string& dtype, const std::string& what) {
  static const std::map<std::string, int64_t> sizes{{"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1},
                                                    {"U16", 2},  {"I16", 2}, {"F16", 2}, {"BF16", 2},    {"U32", 4},
                                                    {"I32", 4},  {"F32", 4}, {"U64", 8}, {"I64", 8},     {"F64", 8}};
  const auto found = sizes.find(dtype);
  VOX_CHECK(found != sizes.end(), what, " has the type \"", printable(dtype), "\", which safetensors does not know");
  return found->second;
}

SafetensorsFile::SafetensorsFile(const fs::path& path) : file_(path), header_(read_header(file_)) {
  const int64_t data_begin = static_cast<int64_t>(header_.size());
  const Json header = parse_shallow<Json>(std::string_view(header_).substr(kLengthBytes));
  VOX_CHECK(header.is_object(), file_.path(), ": the header is no JSON object; the file is damaged or no safetensors");
  for (const auto& [name, entry] : header.items()) {
    if (name != "__metadata__") {
      tensors_.push_back(parse_tensor(name, entry, file_.path(), data_begin));
      continue;
    }
    VOX_CHECK(entry.is_object(), file_.path(), ": __metadata__ is no map");
    for (const auto& [key, value] : entry.items()) {
      VOX_CHECK(value.is_string(), file_.path(), ": metadata \"", printable(key), "\" is no text");
      metadata_[key] = value.get<std::string>();
    }
  }
  std::stable_sort(tensors_.begin(), tensors_.end(),
                   [](const StoredTensor& a, const StoredTensor& b) { return a.begin < b.begin; });
  require_no_holes(tensors_, file_, data_begin);
}

const StoredTensor* SafetensorsFile::find(const std::string& name) const {
  for (const StoredTensor& tensor : tensors_) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

void SafetensorsFile::read(const StoredTensor& tensor, std::span<std::byte> out) const {
  VOX_ASSERT(static_cast<int64_t>(out.size()) == tensor.bytes);
  file_.read(tensor.begin, out);
}

std::string safetensors_header(const std::vector<TensorToStore>& tensors, const Metadata& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  int64_t offset = 0;
  for (const TensorToStore& tensor : tensors) {
    VOX_ASSERT(!header.contains(tensor.name));
    const int64_t bytes = byte_count(tensor.dtype, tensor.shape, tensor.name);
    VOX_ASSERT(bytes == static_cast<int64_t>(tensor.bytes.size()));
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the tensors start aligned
  const uint64_t length = text.size();
  std::string result(static_cast<size_t>(kLengthBytes), '\0');
  std::memcpy(result.data(), &length, sizeof length);
  return result + text;
}

void write_safetensors(const fs::path& path, const std::vector<TensorToStore>& tensors, const Metadata& metadata) {
  OutputFile file(path);
  file.write(safetensors_header(tensors, metadata));
  for (const TensorToStore& tensor : tensors) file.write(tensor.bytes);
  file.commit();
}

}  // namespace vox
