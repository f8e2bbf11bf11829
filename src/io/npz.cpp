// NumPy's archives: a zip file of .npy members.
#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "io/byte_source.h"
#include "io/format.h"
#include "io/npy.h"
#include "io/zip_archive.h"

namespace vox {
namespace {

struct Array {
  std::string name;  // without .npy
  ZipMember member;
};

std::vector<Array> arrays_in(const InputFile& file) {
  std::vector<Array> arrays;
  for (const ZipMember& member : read_zip_directory(file)) {
    if (ends_with(member.name, ".npy")) arrays.push_back({member.name.substr(0, member.name.size() - 4), member});
  }
  VOX_CHECK(!arrays.empty(), file.path(), ": the archive holds no NumPy array");
  return arrays;
}

const Array& choose(const std::vector<Array>& arrays, const std::string& wanted, const std::string& path) {
  if (wanted.empty() && arrays.size() == 1) return arrays.front();
  std::vector<std::string> names;
  for (const Array& array : arrays) {
    if (!wanted.empty() && array.name == wanted) return array;
    names.push_back(array.name);
  }
  const std::string what = wanted.empty() ? ": the archive holds several arrays; say which one as " + path + ":NAME"
                                          : ": there is no array \"" + wanted + "\" in the archive";
  throw Error(concat(path, what, " (it holds ", join(names, ", "), ")"));
}

NpyHeader read_header(const ByteSource& source, const std::string& name) {
  std::vector<std::byte> head(kNpyPrefixBytes);
  const auto fill = [&](size_t from) {
    VOX_CHECK(static_cast<int64_t>(head.size()) <= source.capacity(), name, ": the array is too short for a header");
    const auto stream = source.take_stream({static_cast<int64_t>(from), static_cast<int64_t>(head.size()), 0});
    stream->read(static_cast<int64_t>(from), std::span(head).subspan(from));
  };
  fill(0);
  head.resize(static_cast<size_t>(npy_header_bytes(head, name)));
  fill(0);
  return parse_npy_header(head, name);
}

std::unique_ptr<VolumeReader> open_member(const std::string& path, const std::string& wanted) {
  InputFile file(path);
  const std::vector<Array> arrays = arrays_in(file);
  const Array& array = choose(arrays, wanted, path);
  const PackedRange range = zip_range(file, array.member);
  auto source = std::make_unique<ByteSource>(std::move(file), range);
  const std::string name = path + ":" + array.name;
  const RawLayout layout = npy_layout(read_header(*source, name), name);
  VolumeInfo info;
  info.format = "npz";
  info.codec = range.packing == Packing::kNone ? "none" : "deflate";
  return std::make_unique<RawReader>(std::move(source), layout, info);
}

std::unique_ptr<VolumeReader> open(const std::string& path) {
  return open_member(path, "");
}

bool matches(std::span<const std::byte> head, const fs::path&) {
  constexpr size_t kNameAt = 30;
  if (head.size() < kNameAt || std::memcmp(head.data(), "PK\3\4", 4) != 0) return false;
  const size_t name_bytes = static_cast<size_t>(head[26]) + 256 * static_cast<size_t>(head[27]);
  if (name_bytes > head.size() - kNameAt) return false;
  return ends_with({reinterpret_cast<const char*>(head.data()) + kNameAt, name_bytes}, ".npy");
}

void write(const std::string& path, const Volume& volume, const WriteOptions& options, ThreadPool*) {
  const bool packed = options.codec.empty() || options.codec == "deflate";
  VOX_CHECK(packed || options.codec == "none", path, ": .npz files cannot be packed by codec \"", options.codec,
            "\"; use deflate or none");
  const std::string header = npy_header_for(volume.info);
  const std::span voxels(volume.data.data(), static_cast<size_t>(volume.info.bytes()));
  const uint32_t checksum = crc32_of(voxels, crc32_of(std::as_bytes(std::span(header))));
  OutputFile file(path);
  ZipWriter archive(file);
  archive.begin("volume.npy", packed ? kZipDeflated : kZipStored);
  if (packed) {
    DeflateWriter deflate(file, Packing::kDeflate, options.level);
    deflate.write(std::as_bytes(std::span(header)));
    deflate.write(voxels);
    deflate.finish();
  } else {
    file.write(header);
    file.write(voxels);
  }
  archive.end(checksum, header.size() + voxels.size());
  archive.finish();
  file.commit();
}

}  // namespace

FormatEntry npz_format() {
  return {.name = "npz",
          .help = "NumPy archive; file.npz:array names one of several arrays",
          .suffixes = {".npz"},
          .codecs = {"deflate", "none"},
          .matches = matches,
          .open = open,
          .write = write,
          .open_dataset = open_member};
}

}  // namespace vox
