// NIfTI-1 and NIfTI-2 files, plain or gzipped, and .hdr/.img pairs. The file's x, y, z (x fastest) are z, y, x here
// without moving a voxel; a fourth or fifth axis (time, vector) becomes channels.
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "io/byte_source.h"
#include "io/format.h"
#include "io/nifti_header.h"

namespace vox {
namespace {

std::string sibling(const std::string& path, const std::string& suffix) {
  return path.substr(0, path.size() - suffix.size()) + suffix;  // ".hdr" and ".img" are equally long
}

bool matches(std::span<const std::byte> head, const fs::path& path) {
  if (is_nifti(head) || is_nifti(inflate_head(head))) return true;
  return ends_with(path.string(), ".img") && fs::exists(sibling(path.string(), ".hdr"));
}

std::unique_ptr<ByteSource> open_source(const std::string& path) {
  InputFile file(path);
  std::vector<std::byte> head(2);
  head.resize(static_cast<size_t>(file.read_some(0, head)));
  const bool gzip = head.size() == 2 && head[0] == std::byte{0x1f} && head[1] == std::byte{0x8b};
  const PackedRange range{.packing = gzip ? Packing::kGzip : Packing::kNone, .begin = 0, .end = file.size()};
  return std::make_unique<ByteSource>(std::move(file), range);
}

NiftiHeader read_header(const ByteSource& source) {
  VOX_CHECK(source.capacity() >= kNifti1Bytes, source.path(), ": a file of ", source.file_bytes(),
            " bytes is too short for a NIfTI header; was it copied or downloaded completely?");
  std::vector<std::byte> bytes(kNifti1Bytes);
  std::unique_ptr<ByteStream> stream = source.take_stream({0, kNifti2Bytes, 0});
  stream->read(0, bytes);
  if (nifti_header_bytes(bytes) == kNifti2Bytes) {
    bytes.resize(kNifti2Bytes);
    stream->read(kNifti1Bytes, std::span(bytes).subspan(kNifti1Bytes));
  }
  source.give_back(std::move(stream));
  return parse_nifti_header(bytes, source.path());
}

std::unique_ptr<VolumeReader> open(const std::string& path) {
  std::unique_ptr<ByteSource> source = open_source(ends_with(path, ".img") ? sibling(path, ".hdr") : path);
  std::vector<std::string> files{source->path()};
  const NiftiHeader header = read_header(*source);
  const RawLayout layout = nifti_layout(header, source->path());
  if (header.data_in_other_file) {
    VOX_CHECK(ends_with(source->path(), ".hdr"), path,
              ": the header says that its voxels are in an .img file, but is not named .hdr; rename the pair to "
              "NAME.hdr and NAME.img, or convert it to .nii");
    source = open_source(sibling(source->path(), ".img"));
    files.push_back(source->path());
  }
  VolumeInfo info = nifti_info(header);
  info.codec = source->packing() == Packing::kGzip ? "gzip" : "none";
  return std::make_unique<RawReader>(std::move(source), layout, info, files);
}

void write(const std::string& path, const Volume& volume, const WriteOptions& options, ThreadPool*) {
  const bool packed = ends_with(path, ".gz");
  const std::string codec = packed ? "gzip" : "none";
  VOX_CHECK(options.codec.empty() || options.codec == codec, path, ": the suffix says codec ", codec, ", not \"",
            options.codec, "\"; .nii is never packed, .nii.gz always by gzip");
  const std::string header = nifti_header_for(volume.info);
  const std::span voxels(volume.data.data(), static_cast<size_t>(volume.info.bytes()));
  OutputFile file(path);
  if (packed) {
    DeflateWriter gzip(file, Packing::kGzip, options.level);
    gzip.write(std::as_bytes(std::span(header)));
    gzip.write(voxels);
    gzip.finish();
  } else {
    file.write(header);
    file.write(voxels);
  }
  file.commit();
}

}  // namespace

FormatEntry nifti_format() {
  return {.name = "nifti",
          .help = "NIfTI-1 and NIfTI-2, plain or gzipped; x,y,z is read as z,y,x",
          .suffixes = {".nii.gz", ".nii"},
          .codecs = {"gzip", "none"},
          .matches = matches,
          .open = open,
          .write = write,
          .keeps_scale = true};
}

}  // namespace vox
