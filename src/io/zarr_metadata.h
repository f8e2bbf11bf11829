// What the JSON files of a Zarr array say, versions 2 and 3 alike.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/volume.h"
#include "io/chunk_grid.h"

namespace vox::zarr {

enum class Compressor { kNone, kGzip, kZlib, kZstd, kLz4, kBlosc };
const char* name_of(Compressor compressor);

struct ChunkCodec {
  Compressor compressor = Compressor::kNone;
  bool crc32c = false;  // four bytes follow
};

struct Sharding {                      // chunks lie together in one file, with an index at its end or begin
  std::vector<int64_t> chunks_across;  // chunks in a shard, by axis
  bool index_at_end = true, index_crc32c = true;
  int64_t chunks() const;
};

struct Array {
  std::vector<int64_t> shape, chunk;  // every axis of the file
  ChunkGrid grid;                     // the last four of them
  ChunkCodec codec;
  std::optional<Sharding> sharding;
  std::string key_prefix;  // "c/" in version 3
  char separator = '.';
  std::vector<std::byte> fill;  // one voxel in the type it is read as
};

// `folder` holds `.zarray`, or a `zarr.json` that says array.
Array read_array(const fs::path& folder);
bool is_array(const fs::path& folder);
bool is_group(const fs::path& folder);

struct Level {  // of an OME multiscale image
  std::string path;
  std::optional<Spacing3> spacing;  // where scales and units are said
};
std::vector<Level> read_levels(const fs::path& group);          // empty: none
std::optional<Spacing3> voxel_size_of(const fs::path& folder);  // the attribute that our writer leaves

inline constexpr const char* kVoxelSizeKey = "voxel_size_mm";

}  // namespace vox::zarr
