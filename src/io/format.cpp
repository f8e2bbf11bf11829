// Which format a file is, and the errors that every format shares: missing, unreadable, empty, of no known kind.
#include "io/format.h"

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "io/volume_name.h"

namespace vox {

#define VOX_FORMAT(name) FormatEntry name##_format();
#include "io/formats.list"
#undef VOX_FORMAT

const std::vector<FormatEntry>& all_formats() {
#define VOX_FORMAT(name) name##_format(),
  static const std::vector<FormatEntry> entries{
#include "io/formats.list"
  };
#undef VOX_FORMAT
  return entries;
}

namespace {

constexpr int64_t kHeadBytes = 512;

VolumeName split_name(const std::string& name) {
  VOX_CHECK(!name.empty(), "the name of a volume is empty; expected a file, or file:dataset");
  std::error_code problem;
  if (!fs::exists(name, problem) && problem == std::errc::permission_denied) throw_system_error("open", name, EACCES);
  const std::optional<VolumeName> found = existing_volume(name);
  VOX_CHECK(found, name, ": no such file; check the name and the folder it is relative to");
  return *found;
}

std::vector<std::byte> read_head(const std::string& path) {
  if (fs::is_directory(path)) return {};
  VOX_CHECK(fs::is_regular_file(path), path, ": this is neither a file nor a folder; expected a volume");
  const InputFile file(path);
  VOX_CHECK(file.size() > 0, path, ": the file is empty (0 bytes); was it copied or downloaded completely?");
  std::vector<std::byte> head(static_cast<size_t>(std::min(kHeadBytes, file.size())));
  head.resize(static_cast<size_t>(file.read_some(0, head)));
  return head;
}

// The entry with the longest suffix that `path` ends in; null where there is none.
const FormatEntry* entry_by_suffix(const std::string& path) {
  const FormatEntry* best = nullptr;
  size_t best_length = 0;
  for (const FormatEntry& entry : all_formats()) {
    for (const std::string& suffix : entry.suffixes) {
      if (suffix.size() <= best_length || !ends_with(path, suffix)) continue;
      best = &entry;
      best_length = suffix.size();
    }
  }
  return best;
}

std::string known_suffixes(bool writable_only) {
  std::vector<std::string> known;
  for (const FormatEntry& entry : all_formats()) {
    if (writable_only && entry.write == nullptr) continue;
    known.insert(known.end(), entry.suffixes.begin(), entry.suffixes.end());
  }
  return join(known, " ");
}

const FormatEntry& find_format(const std::string& path) {
  const std::vector<std::byte> head = read_head(path);
  for (const FormatEntry& entry : all_formats()) {
    if (entry.matches(head, path)) return entry;
  }
  const bool folder = fs::is_directory(path);
  const FormatEntry* by_suffix = folder ? nullptr : entry_by_suffix(path);
  VOX_CHECK(by_suffix != nullptr, path, folder ? ": this is a folder" : ": neither its first bytes nor its name",
            folder ? ", and not one that holds a volume" : " say what kind of volume this is", "; known are ",
            known_suffixes(false));
  return *by_suffix;
}

}  // namespace

std::unique_ptr<VolumeReader> open_volume(const std::string& name) {
  const VolumeName parts = split_name(name);
  const FormatEntry& format = find_format(parts.path);
  if (parts.dataset.empty()) return format.open(parts.path);
  VOX_CHECK(format.open_dataset != nullptr, name, ": a ", format.name,
            " file holds one volume and no named datasets; leave out \":", parts.dataset, "\"");
  return format.open_dataset(parts.path, parts.dataset);
}

namespace {

Volume room_for(const VolumeInfo& info, const std::string& name) {
  try {
    return allocate_volume(info);
  } catch (const Error& error) {
    throw with_context(concat(name, ": ", info.channels, "x", info.extent, " voxels of ", name_of(info.dtype)), error);
  }
}

}  // namespace

Volume read_volume(const std::string& name, ThreadPool* pool) {
  const std::unique_ptr<VolumeReader> reader = open_volume(name);
  const VolumeInfo& info = reader->info();
  Volume volume = room_for(info, name);
  const int64_t channel_bytes = info.extent.voxels() * size_of(info.dtype);
  for (int64_t channel = 0; channel < info.channels; ++channel)
    reader->read(whole(info.extent), channel, volume.data.data() + channel * channel_bytes, pool);
  return volume;
}

std::optional<VolumeName> existing_volume(const std::string& name) {
  std::error_code ignored;
  if (fs::exists(name, ignored)) return VolumeName{name, ""};
  for (size_t colon = name.rfind(':'); colon != std::string::npos && colon > 0; colon = name.rfind(':', colon - 1)) {
    if (fs::exists(name.substr(0, colon), ignored)) return VolumeName{name.substr(0, colon), name.substr(colon + 1)};
  }
  return std::nullopt;
}

VolumeName name_to_write(const std::string& name) {
  if (entry_by_suffix(name) != nullptr) return {name, ""};
  for (size_t colon = name.rfind(':'); colon != std::string::npos && colon > 0; colon = name.rfind(':', colon - 1)) {
    const VolumeName parts{name.substr(0, colon), name.substr(colon + 1)};
    const FormatEntry* const format = entry_by_suffix(parts.path);
    if (format == nullptr) continue;
    VOX_CHECK(format->name == "hdf5" || format->name == "zarr", name, ": a ", format->name,
              " file is written with one volume and no named datasets; leave out \":", parts.dataset, "\"");
    for (const std::string& part : split(parts.dataset, '/'))
      VOX_CHECK(!part.empty() && part.front() != '.', name, ": \"", parts.dataset,
                "\" is no name of a dataset; expected such as raw, or group/raw");
    return parts;
  }
  return {name, ""};
}

const FormatEntry& format_to_write(const std::string& name) {
  const FormatEntry* format = entry_by_suffix(name_to_write(name).path);
  VOX_CHECK(format != nullptr && format->write != nullptr, name,
            format == nullptr ? ": its suffix names no known format" : ": this format can be read but not written",
            "; use one of ", known_suffixes(true));
  return *format;
}

namespace {

void require_holds(const std::string& name, const FormatEntry& format, const VolumeInfo& info) {
  VOX_CHECK(info.voxels() > 0, name, ": there are no voxels to write");
  VOX_CHECK(format.keeps_scale || (info.scale == 1 && info.offset == 0), name, ": a ", format.name,
            " file has no place for the scale ", info.scale, " and offset ", info.offset,
            " of these voxels; convert them to real values first (--dtype float32)");
  std::vector<std::string> known;
  for (const DType type : format.types) known.push_back(name_of(type));
  const bool listed = std::find(format.types.begin(), format.types.end(), info.dtype) != format.types.end();
  VOX_CHECK(format.types.empty() || listed, name, ": a ", format.name, " file cannot hold ", name_of(info.dtype),
            "; convert to one of ", join(known, ", "));
}

}  // namespace

SlabSource slabs_of(const Volume& volume) {
  return {volume.info, volume.info.extent.z, [&volume](int64_t, int64_t) -> const Volume& { return volume; }};
}

void each_slab(const SlabSource& source, int64_t chunk_z, const UseSlab& use) {
  const int64_t end = source.info.extent.z;
  const int64_t chunks = std::max<int64_t>(1, source.slices / chunk_z);
  const int64_t slices = source.slices >= end ? end : chunks * chunk_z;
  for (int64_t z = 0; z < end; z += slices) {
    VolumeInfo expected = source.info;
    expected.extent.z = std::min(slices, end - z);
    const Volume& slab = source.read(z, z + expected.extent.z);
    VOX_ASSERT(slab.info.extent == expected.extent && slab.info.channels == expected.channels &&
               slab.info.dtype == expected.dtype);
    use(z, slab);
  }
}

void write_volume(const std::string& name, const Volume& volume, const WriteOptions& options, ThreadPool* pool) {
  const FormatEntry& format = format_to_write(name);
  require_holds(name, format, volume.info);
  format.write(name, volume, options, pool);
}

void write_slabs(const std::string& name, const SlabSource& source, const WriteOptions& options, ThreadPool* pool) {
  const FormatEntry& format = format_to_write(name);
  VOX_ASSERT(format.write_slabs != nullptr);
  require_holds(name, format, source.info);
  format.write_slabs(name, source, options, pool);
}

}  // namespace vox
