#include "train/checkpoint_file.h"

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"

namespace vox {
namespace {

constexpr const char* kChecksums = "voxloom.crc32c";

uint32_t crc_of(const std::string& text) {
  return crc32c(std::as_bytes(std::span(text)));
}

void require_sum(const SafetensorsFile& file, const std::string& what, uint32_t found, uint32_t expected) {
  VOX_CHECK(found == expected, file.path(), ": the checkpoint is damaged (the checksum of ", what, " does not fit)");
}

std::vector<uint32_t> verified_sums(const SafetensorsFile& file) {
  const StoredTensor* stored = file.tensors().empty() ? nullptr : &file.tensors().back();
  VOX_CHECK(
      stored && stored->name == kChecksums && stored->bytes == static_cast<int64_t>(file.tensors().size()) * 4,
      file.path(), " does not end in its checksums (", kChecksums,
      "): it is damaged, or no checkpoint of Voxloom (a run starts from weights alone with model.weights; those of "
      "others come in by `voxloom weights import`)");
  std::vector<uint32_t> sums(file.tensors().size());
  file.read(*stored, std::as_writable_bytes(std::span(sums)));
  require_sum(file, "the header", crc_of(file.header()), sums.back());
  return sums;
}

}  // namespace

void write_checkpoint_file(const std::filesystem::path& path, const Metadata& metadata,
                           const std::vector<TensorToStore>& tensors) {
  std::vector<uint32_t> sums;
  for (const TensorToStore& tensor : tensors) sums.push_back(crc32c(tensor.bytes));
  sums.push_back(0);  // of the header, once there is one
  std::vector<TensorToStore> all = tensors;
  all.push_back({kChecksums, "U32", {static_cast<int64_t>(sums.size())}, std::as_bytes(std::span(sums))});
  sums.back() = crc_of(safetensors_header(all, metadata));
  write_safetensors(path, all, metadata);
}

CheckpointFile read_checkpoint_file(const std::filesystem::path& path) {
  const SafetensorsFile file(path);
  const std::vector<uint32_t> sums = verified_sums(file);
  CheckpointFile result{.path = path, .metadata = file.metadata(), .tensors = {}, .bytes = {}};
  const StoredTensor& last = file.tensors().back();
  const int64_t first = file.tensors().front().begin;
  result.bytes = Buffer(last.begin - first);
  for (size_t i = 0; i + 1 < file.tensors().size(); ++i) {
    const StoredTensor& stored = file.tensors()[i];
    const std::span<std::byte> bytes(result.bytes.data() + (stored.begin - first), static_cast<size_t>(stored.bytes));
    file.read(stored, bytes);
    require_sum(file, "tensor " + stored.name, crc32c(bytes), sums[i]);
    result.tensors.push_back({stored.name, stored.dtype, stored.shape, bytes});
  }
  return result;
}

Metadata read_checkpoint_metadata(const std::filesystem::path& path) {
  const SafetensorsFile file(path);
  verified_sums(file);
  return file.metadata();
}

}  // namespace vox
