// Zarr folders, versions 2 and 3, sharded or not, and OME-Zarr images. Only the chunks that a box touches are read, and
// of those that are not packed only the part. A chunk without a file is its fill value.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "io/format.h"
#include "io/zarr_codec.h"
#include "io/zarr_metadata.h"
#include "io/zarr_writer.h"

namespace vox {
namespace {

using zarr::Array;
using zarr::Compressor;

constexpr uint64_t kNoChunk = ~uint64_t{0};
constexpr size_t kKeptShardIndices = 64;
constexpr int64_t kLargeChunk = int64_t{64} << 20;  // above it, memory is asked for only if the file can fill it
constexpr int64_t kMostExpansion = 131072;          // of zstd, the highest

struct PackedPlace {  // of one chunk in a shard
  uint64_t offset = kNoChunk, bytes = kNoChunk;
};
using ShardIndex = std::vector<PackedPlace>;

std::byte* scratch(std::vector<std::byte>& buffer, int64_t bytes) {
  if (static_cast<int64_t>(buffer.size()) < bytes) buffer.resize(static_cast<size_t>(bytes));
  return buffer.data();
}

class ZarrReader final : public VolumeReader {
 public:
  ZarrReader(const fs::path& folder, const std::optional<Spacing3>& spacing)
      : folder_(folder), array_(zarr::read_array(folder)) {
    const auto& grid = array_.grid;
    info_.dtype = dtype_read_as(grid.type);
    info_.channels = grid.sizes[0];
    info_.extent = {grid.sizes[1], grid.sizes[2], grid.sizes[3]};
    info_.spacing = spacing ? spacing : zarr::voxel_size_of(folder);
    info_.format = "zarr";
    info_.codec = name_of(array_.codec.compressor);
    if (packed()) info_.chunk = min({grid.chunk[1], grid.chunk[2], grid.chunk[3]}, info_.extent);
  }

  void read(const Box3& box, int64_t channel, std::byte* out, ThreadPool* pool) const override {
    VOX_ASSERT(!box.empty() && whole(info_.extent).contains(box) && channel >= 0 && channel < info_.channels);
    const std::vector<ChunkPart> parts = parts_of(array_.grid, box, channel);
    const BoxTarget target{out, box.extent(), info_.dtype};
    const auto run = [&](int64_t i) { read_part(parts[static_cast<size_t>(i)], target); };
    const int64_t count = static_cast<int64_t>(parts.size());
    if (pool && count > 1) return pool->for_each(count, run);
    for (int64_t i = 0; i < count; ++i) run(i);
  }

 private:
  bool packed() const { return array_.codec.compressor != Compressor::kNone || array_.codec.crc32c; }

  void read_part(const ChunkPart& part, const BoxTarget& target) const {
    const std::vector<int64_t> position = position_of(part.chunk);
    const fs::path path = folder_ / key_of(position);
    std::error_code problem;
    if (!fs::exists(path, problem)) {
      if (problem && problem != std::errc::no_such_file_or_directory)
        throw_system_error("open", path.string(), problem.value());
      return fill_part(part, array_.fill.data(), target);
    }
    const InputFile file(path);
    int64_t begin = 0, bytes = file.size();
    if (array_.sharding) {
      const PackedPlace place = place_in_shard(file, position);
      if (place.offset == kNoChunk && place.bytes == kNoChunk) return fill_part(part, array_.fill.data(), target);
      VOX_CHECK(
          place.offset <= static_cast<uint64_t>(bytes) && place.bytes <= static_cast<uint64_t>(bytes) - place.offset,
          path.string(), ": the index of the shard points behind its end; was it copied completely?");
      begin = static_cast<int64_t>(place.offset);
      bytes = static_cast<int64_t>(place.bytes);
    }
    try {
      decode_part(file, begin, bytes, part, target);
    } catch (const Error& error) {
      throw with_context(concat(path.string(), ": this chunk cannot be read"), error);
    }
  }

  void decode_part(const InputFile& file, int64_t begin, int64_t bytes, const ChunkPart& part,
                   const BoxTarget& target) const {
    thread_local std::vector<std::byte> packed_bytes, chunk;
    const ByteRange wanted = bytes_of(array_.grid, part);
    const int64_t whole_bytes = array_.grid.chunk_bytes;
    if (!packed()) {
      VOX_CHECK(bytes == whole_bytes, "it has ", bytes, " bytes, but ", whole_bytes, " are expected");
      std::byte* to = scratch(chunk, wanted.end - wanted.begin);
      file.read(begin + wanted.begin, {to, static_cast<size_t>(wanted.end - wanted.begin)});
      return copy_part(array_.grid, part, to - wanted.begin, target, file.path());
    }
    VOX_CHECK(whole_bytes <= kLargeChunk || whole_bytes / kMostExpansion <= bytes, "a chunk of ", whole_bytes,
              " bytes cannot come from ", bytes, " packed ones");
    const std::span<std::byte> from(scratch(packed_bytes, bytes), static_cast<size_t>(bytes));
    file.read(begin, from);
    const std::span<std::byte> to(scratch(chunk, whole_bytes), static_cast<size_t>(whole_bytes));
    zarr::decode_chunk(array_.codec, from, to, wanted);
    copy_part(array_.grid, part, to.data(), target, file.path());
  }

  // Axes of length 1 before channel, z, y, x stand at 0.
  std::vector<int64_t> position_of(const std::array<int64_t, 4>& chunk) const {
    const size_t rank = array_.shape.size(), kept = std::min<size_t>(rank, 4);
    std::vector<int64_t> position(rank, 0);
    for (size_t i = 0; i < kept; ++i) position[rank - 1 - i] = chunk[3 - i];
    return position;
  }

  std::string key_of(const std::vector<int64_t>& position) const {
    std::string key = array_.key_prefix;
    for (size_t axis = 0; axis < position.size(); ++axis) {
      if (axis > 0) key += array_.separator;
      key += std::to_string(array_.sharding ? position[axis] / array_.sharding->chunks_across[axis] : position[axis]);
    }
    return key;
  }

  PackedPlace place_in_shard(const InputFile& shard, const std::vector<int64_t>& position) const {
    int64_t number = 0;
    for (size_t axis = 0; axis < position.size(); ++axis) {
      const int64_t across = array_.sharding->chunks_across[axis];
      number = number * across + position[axis] % across;
    }
    return (*index_of(shard))[static_cast<size_t>(number)];
  }

  std::shared_ptr<const ShardIndex> index_of(const InputFile& shard) const {
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [path, index] : indices_)
        if (path == shard.path()) return index;
    }
    auto index = read_index(shard);
    const std::lock_guard lock(mutex_);
    indices_.emplace_front(shard.path(), index);
    if (indices_.size() > kKeptShardIndices) indices_.pop_back();
    return index;
  }

  std::shared_ptr<const ShardIndex> read_index(const InputFile& shard) const {
    const auto& sharding = *array_.sharding;
    const int64_t places = sharding.chunks() * 16, bytes = places + (sharding.index_crc32c ? 4 : 0);
    VOX_CHECK(shard.size() >= bytes, shard.path(), ": a shard has an index of ", bytes, " bytes, but this file has ",
              shard.size(), "; was it copied completely?");
    std::vector<std::byte> raw(static_cast<size_t>(bytes));
    shard.read(sharding.index_at_end ? shard.size() - bytes : 0, raw);
    const std::span<const std::byte> content(raw.data(), static_cast<size_t>(places));
    if (sharding.index_crc32c) {
      uint32_t expected;
      std::memcpy(&expected, raw.data() + places, 4);
      VOX_CHECK(crc32c(content) == expected, shard.path(), ": the checksum of the shard's index is wrong");
    }
    auto index = std::make_shared<ShardIndex>(static_cast<size_t>(sharding.chunks()));
    std::memcpy(index->data(), content.data(), content.size());
    return index;
  }

  const fs::path folder_;
  const Array array_;
  mutable std::mutex mutex_;                                                              // guards indices_
  mutable std::list<std::pair<std::string, std::shared_ptr<const ShardIndex>>> indices_;  // the newest first
};

bool there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool is_n5(const fs::path& path) {
  return there(path / "attributes.json") && !there(path / ".zarray") && !there(path / "zarr.json");
}
bool is_version1(const fs::path& path) {
  return there(path / "meta") && there(path / "attrs");
}

bool matches(std::span<const std::byte> head, const fs::path& path) {
  if (!head.empty() || !fs::is_directory(path)) return false;
  return there(path / ".zarray") || there(path / ".zgroup") || there(path / "zarr.json") || is_n5(path) ||
         is_version1(path) || ends_with(path.string(), ".zarr");
}

// Those of groups inside it too, such as volumes/raw. What begins with a dot was never finished.
void collect_arrays(const fs::path& group, const std::string& prefix, std::vector<std::string>* names) {
  constexpr std::ptrdiff_t kDeepest = 4;
  for (const fs::directory_entry& item : fs::directory_iterator(group)) {
    const std::string name = item.path().filename().string();
    if (!item.is_directory() || name.starts_with('.')) continue;
    if (zarr::is_array(item.path()))
      names->push_back(prefix + name);
    else if (zarr::is_group(item.path()) && std::count(prefix.begin(), prefix.end(), '/') < kDeepest)
      collect_arrays(item.path(), concat(prefix, name, "/"), names);
  }
}

std::vector<std::string> arrays_in(const fs::path& group) {
  std::vector<std::string> names;
  collect_arrays(group, "", &names);
  std::sort(names.begin(), names.end(), natural_less);
  return names;
}

std::string known_arrays(const fs::path& group) {
  const std::vector<std::string> names = arrays_in(group);
  return names.empty() ? "it holds none" : "it holds " + join(names, ", ");
}

void refuse_old_layouts(const fs::path& folder) {
  VOX_CHECK(!is_n5(folder), folder.string(), ": this is N5, not Zarr; copy it to Zarr version 2 or 3");
  VOX_CHECK(!is_version1(folder), folder.string(), ": this is Zarr version 1; copy it to Zarr version 2 or 3");
}

// The spacing that the group around an array says for it.
std::optional<Spacing3> spacing_from(const fs::path& group, const std::string& name) {
  if (!zarr::is_group(group)) return std::nullopt;
  for (const zarr::Level& level : zarr::read_levels(group))
    if (level.path == name) return level.spacing;
  return std::nullopt;
}

std::unique_ptr<VolumeReader> open_array(const fs::path& group, const std::string& name) {
  const fs::path folder = group / name;
  refuse_old_layouts(folder);
  VOX_CHECK(zarr::is_array(folder), group.string(), ": there is no array \"", printable(name),
            "\" in this Zarr group; ", known_arrays(group));
  return std::make_unique<ZarrReader>(folder, spacing_from(group, name));
}

std::unique_ptr<VolumeReader> open_folder(const std::string& path) {
  const fs::path folder = fs::absolute(path).lexically_normal();
  const fs::path tidy = folder.has_filename() ? folder : folder.parent_path();
  refuse_old_layouts(tidy);
  if (zarr::is_array(tidy))
    return std::make_unique<ZarrReader>(path, spacing_from(tidy.parent_path(), tidy.filename().string()));
  VOX_CHECK(zarr::is_group(tidy), path,
            ": this folder has no .zarray, .zgroup or zarr.json, so it is no Zarr; was it copied completely?");
  const std::vector<zarr::Level> levels = zarr::read_levels(tidy);
  if (!levels.empty()) return open_array(path, levels.front().path);
  const std::vector<std::string> names = arrays_in(tidy);
  std::vector<std::string> candidates = names;
  std::erase_if(candidates, [](const std::string& name) { return name.find('/') != std::string::npos; });
  if (candidates.empty()) candidates = names;  // all lie in groups inside it
  VOX_CHECK(candidates.size() == 1, path, ": this Zarr group holds ", names.empty() ? "no arrays" : join(names, ", "),
            names.empty() ? "" : "; choose one: PATH:NAME");
  return open_array(path, candidates.front());
}

// Whatever odd metadata still gets past our own checks is the file's fault and a sentence, too.
template <class Open>
std::unique_ptr<VolumeReader> with_sentences(const std::string& path, Open&& open_it) {
  try {
    return open_it();
  } catch (const nlohmann::json::exception&) {
    throw Error(
        concat(path, ": the metadata of this Zarr cannot be understood: a value is of another kind than Zarr's"));
  } catch (const fs::filesystem_error& error) {
    throw_system_error("read", path, error.code().value());
  }
}

std::unique_ptr<VolumeReader> open(const std::string& path) {
  return with_sentences(path, [&] { return open_folder(path); });
}

std::unique_ptr<VolumeReader> open_dataset(const std::string& path, const std::string& dataset) {
  return with_sentences(path, [&]() -> std::unique_ptr<VolumeReader> {
    refuse_old_layouts(path);
    VOX_CHECK(!zarr::is_array(path), path, ": this is one Zarr array and no group; leave out \":", dataset, "\"");
    return open_array(path, dataset);
  });
}

void write(const std::string& path, const Volume& volume, const WriteOptions& options, ThreadPool* pool) {
  zarr::write_array(path, slabs_of(volume), options, pool);
}

}  // namespace

FormatEntry zarr_format() {
  FormatEntry entry{"zarr",    "Zarr folder, version 2 or 3, sharded too; OME-Zarr: PATH:0 picks a level",
                    {".zarr"}, {"blosc", "none", "gzip", "zlib", "zstd", "lz4"},
                    matches,   open,
                    write};
  entry.write_slabs = zarr::write_array;
  entry.open_dataset = open_dataset;
  return entry;
}

}  // namespace vox
