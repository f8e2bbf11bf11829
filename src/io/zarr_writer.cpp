#include "io/zarr_writer.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "io/folder_write.h"
#include "io/lz4_block.h"
#include "io/volume_name.h"
#include "io/zarr_codec.h"
#include "io/zarr_types.h"

namespace vox::zarr {
namespace {

using nlohmann::ordered_json;

constexpr Extent3 kDefaultChunk{64, 64, 64};
constexpr int kDefaultLevel = 1;  // of gzip, zlib and zstd: chunks are read far more often than kept small

ChunkEncoding encoding_of(const std::string& path, const VolumeInfo& info, const WriteOptions& options) {
  ChunkEncoding encoding;
  encoding.type_size = size_of(info.dtype);
  encoding.level = options.level < 0 ? kDefaultLevel : options.level;
  if (options.codec.empty()) {
    encoding.compressor = have_lz4() ? Compressor::kBlosc : Compressor::kGzip;
    return encoding;
  }
  std::vector<std::string> known;
  for (const Compressor one : {Compressor::kNone, Compressor::kGzip, Compressor::kZlib, Compressor::kZstd,
                               Compressor::kLz4, Compressor::kBlosc}) {
    known.emplace_back(name_of(one));
    if (options.codec != known.back()) continue;
    encoding.compressor = one;
    return encoding;
  }
  throw Error(
      concat(path, ": Zarr chunks cannot be packed by \"", options.codec, "\"; use one of ", join(known, ", ")));
}

ordered_json compressor_json(const ChunkEncoding& encoding) {
  const char* id = name_of(encoding.compressor);
  switch (encoding.compressor) {
    case Compressor::kNone:
      return nullptr;
    case Compressor::kLz4:
      return {{"id", id}, {"acceleration", 1}};
    case Compressor::kBlosc:
      return {{"id", id}, {"cname", "lz4"}, {"clevel", 5}, {"shuffle", 1}, {"blocksize", 0}};
    default:
      return {{"id", id}, {"level", encoding.level}};
  }
}

void put_json(const fs::path& path, const ordered_json& value) {
  const std::string text = value.dump(2) + "\n";
  write_plainly(path, std::as_bytes(std::span(text)));
}

void write_metadata(const fs::path& folder, const VolumeInfo& info, const Extent3& chunk,
                    const ChunkEncoding& encoding) {
  ordered_json shape{info.extent.z, info.extent.y, info.extent.x}, chunks{chunk.z, chunk.y, chunk.x};
  if (info.channels > 1) {
    shape.insert(shape.begin(), info.channels);
    chunks.insert(chunks.begin(), 1);
  }
  put_json(folder / ".zarray", {{"zarr_format", 2},
                                {"shape", shape},
                                {"chunks", chunks},
                                {"dtype", numpy_name(info.dtype)},
                                {"compressor", compressor_json(encoding)},
                                {"fill_value", 0},
                                {"order", "C"},
                                {"filters", nullptr},
                                {"dimension_separator", "/"}});
  if (!info.spacing) return;
  const Spacing3& spacing = *info.spacing;
  put_json(folder / ".zattrs", {{kVoxelSizeKey, {spacing.z_mm, spacing.y_mm, spacing.x_mm}}});
}

// A whole chunk, zeros where it hangs over the volume; `begin` counts from the slab's first slice.
std::vector<std::byte> cut_chunk(const Volume& volume, int64_t channel, const Extent3& begin, const Extent3& chunk) {
  const VolumeInfo& info = volume.info;
  const int64_t size = size_of(info.dtype);
  std::vector<std::byte> bytes(static_cast<size_t>(chunk.voxels() * size));
  const Extent3 count = min(chunk, info.extent - begin);
  for (int64_t z = 0; z < count.z; ++z) {
    for (int64_t y = 0; y < count.y; ++y) {
      const Extent3 at = begin + Extent3{z, y, 0};
      const int64_t from = ((channel * info.extent.z + at.z) * info.extent.y + at.y) * info.extent.x + at.x;
      std::memcpy(bytes.data() + (z * chunk.y + y) * chunk.x * size, volume.data.data() + from * size,
                  static_cast<size_t>(count.x * size));
    }
  }
  return bytes;
}

struct ChunkForm {
  Extent3 size;
  ChunkEncoding encoding;
};

// The chunks of a slab whose first are those of row `first_row` along z.
void write_chunks(const fs::path& folder, const Volume& slab, int64_t first_row, const ChunkForm& form,
                  ThreadPool* pool) {
  const Extent3 chunk = form.size, extent = slab.info.extent;
  const Extent3 across{(extent.z + chunk.z - 1) / chunk.z, (extent.y + chunk.y - 1) / chunk.y,
                       (extent.x + chunk.x - 1) / chunk.x};
  const auto write_chunk = [&](int64_t number) {
    const int64_t channel = number / across.voxels(), place = number % across.voxels();
    const Extent3 at{place / (across.y * across.x), place / across.x % across.y, place % across.x};
    const Extent3 begin{at.z * chunk.z, at.y * chunk.y, at.x * chunk.x};
    const fs::path channel_folder = slab.info.channels > 1 ? folder / std::to_string(channel) : folder;
    const fs::path row = channel_folder / std::to_string(first_row + at.z) / std::to_string(at.y);
    make_folders(row);
    write_plainly(row / std::to_string(at.x), encode_chunk(form.encoding, cut_chunk(slab, channel, begin, chunk)));
  };
  const int64_t chunks = across.voxels() * slab.info.channels;
  if (pool)
    pool->for_each(chunks, write_chunk);
  else
    for (int64_t i = 0; i < chunks; ++i) write_chunk(i);
}

// The folder of the array: `path`, or one in the group `path`, which is there then.
fs::path folder_of(const std::string& name) {
  const VolumeName parts = name_to_write(name);
  if (parts.dataset.empty()) return name;
  fs::path group = parts.path;
  const fs::path folder = group / parts.dataset;
  for (const fs::path& inner : fs::path(parts.dataset)) {
    std::error_code none;
    const bool ours = fs::exists(group / ".zgroup", none);
    VOX_CHECK(ours || !fs::exists(group, none) || (fs::is_directory(group, none) && fs::is_empty(group, none)), name,
              ": ", group.string(),
              " is no group of Zarr version 2, which arrays could be put into; choose another name");
    make_folders(group);
    if (!ours) put_json(group / ".zgroup", {{"zarr_format", 2}});
    group /= inner;
  }
  return folder;
}

bool is_zarr_array(const fs::path& path) {
  return is_array(path);
}

}  // namespace

void write_array(const std::string& path, const SlabSource& source, const WriteOptions& options, ThreadPool* pool) {
  const VolumeInfo& info = source.info;
  const ChunkEncoding encoding = encoding_of(path, info, options);
  const Extent3 chunk = min(options.chunk == Extent3{} ? kDefaultChunk : options.chunk, info.extent);
  FolderWrite folder(folder_of(path), is_zarr_array);
  write_metadata(folder.temporary(), info, chunk, encoding);
  each_slab(source, chunk.z, [&](int64_t z_begin, const Volume& slab) {
    write_chunks(folder.temporary(), slab, z_begin / chunk.z, {chunk, encoding}, pool);
  });
  folder.commit();
}

}  // namespace vox::zarr
