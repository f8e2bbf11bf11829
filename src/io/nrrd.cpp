// NRRD: a text header with the data behind it (.nrrd) or in a file of its own (.nhdr); raw or gzip.
#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "io/format.h"
#include "io/nrrd_header.h"

namespace vox {
namespace {

constexpr int64_t kMostHeaderBytes = 1 << 20;

bool matches(std::span<const std::byte> head, const fs::path&) {
  return head.size() >= 8 && std::memcmp(head.data(), "NRRD000", 7) == 0;
}

int64_t skip_lines(const InputFile& file, int64_t lines) {
  std::vector<std::byte> block(4096);
  int64_t at = 0;
  while (lines > 0) {
    const int64_t got = file.read_some(at, block);
    VOX_CHECK(got > 0, file.path(), ": the file ends before the lines that its header says to skip");
    for (int64_t i = 0; i < got && lines > 0; ++i, ++at)
      if (block[static_cast<size_t>(i)] == std::byte{'\n'}) --lines;
  }
  return at;
}

std::unique_ptr<VolumeReader> open(const std::string& path) {
  const InputFile file(path);
  std::string text(static_cast<size_t>(std::min(kMostHeaderBytes, file.size())), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  size_t end = text.find("\n\n"), data_begin = end + 2;
  const size_t windows_end = text.find("\r\n\r\n");
  if (windows_end < end) end = windows_end, data_begin = windows_end + 4;
  const bool ended = end != std::string::npos;
  nrrd::Header header = nrrd::parse_header(std::string_view(text).substr(0, ended ? end : text.size()), path);
  VOX_CHECK(ended || !header.data_file.empty(), path,
            ": the header does not end with an empty line; was the file copied or downloaded completely?");
  const bool detached = !header.data_file.empty();
  InputFile data(detached ? (fs::path(path).parent_path() / header.data_file) : fs::path(path));
  PackedRange range{.packing = header.gzip ? Packing::kGzip : Packing::kNone,
                    .begin = detached ? skip_lines(data, header.line_skip) : static_cast<int64_t>(data_begin),
                    .end = data.size()};
  if (header.data_at_end) {
    int64_t bytes = size_of(header.layout.type);
    bool overflow = false;
    for (const int64_t size : header.layout.sizes) overflow |= __builtin_mul_overflow(bytes, size, &bytes);
    VOX_CHECK(!overflow && bytes >= 0 && bytes <= data.size() - range.begin, data.path(),
              ": the file is smaller than the array that its header says");
    range.begin = data.size() - bytes;
  }
  VOX_CHECK(range.begin < range.end, data.path(), ": there is no data behind the header; was it copied completely?");
  VolumeInfo info;
  info.format = "nrrd";
  info.codec = header.gzip ? "gzip" : "none";
  info.spacing = header.spacing;
  info.affine = header.affine;
  const std::vector<std::string> files{path, data.path()};
  return std::make_unique<RawReader>(std::make_unique<ByteSource>(std::move(data), range), header.layout, info, files);
}

void write(const std::string& path, const Volume& volume, const WriteOptions& options, ThreadPool*) {
  VOX_CHECK(options.codec.empty() || options.codec == "gzip" || options.codec == "none", path,
            ": NRRD data cannot be packed by \"", options.codec, "\"; use gzip or none");
  const bool gzip = options.codec != "none", detached = ends_with(path, ".nhdr");
  const fs::path target(path);
  const std::string data_name = detached ? target.stem().string() + (gzip ? ".raw.gz" : ".raw") : "";
  OutputFile header(path);
  header.write(nrrd::header_for(volume.info, gzip, data_name));
  std::unique_ptr<OutputFile> data_file;
  if (detached) data_file = std::make_unique<OutputFile>(target.parent_path() / data_name);
  OutputFile& data = detached ? *data_file : header;
  const std::span voxels(volume.data.data(), static_cast<size_t>(volume.info.bytes()));
  if (gzip) {
    DeflateWriter packer(data, Packing::kGzip, options.level < 0 ? 1 : options.level);
    packer.write(voxels);
    packer.finish();
  } else {
    data.write(voxels);
  }
  if (detached) data.commit();  // before the header that names it
  header.commit();
}

}  // namespace

FormatEntry nrrd_format() {
  return {"nrrd",
          "NRRD, attached (.nrrd) or detached (.nhdr), raw or gzip",
          {".nrrd", ".nhdr"},
          {"gzip", "none"},
          matches,
          open,
          write};
}

}  // namespace vox
