// The seam between files and everything else: one Format per file kind, opened by magic bytes, then by suffix.
// docs/add-a-format.md walks through adding one.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/volume.h"

namespace vox {

class ThreadPool;

// An open file. read() may be called by many threads at once; it reads no more of the file than the box needs, where
// the format allows that.
class VolumeReader {
 public:
  virtual ~VolumeReader() = default;
  const VolumeInfo& info() const { return info_; }
  // What it is read from, where that is more or other than the file or folder that was opened.
  const std::vector<std::string>& files() const { return files_; }

  // Writes channel `channel` of `box` (inside the volume) to `out`, z, y, x, in info().dtype, native byte order.
  // `pool` decodes pieces at once where there are several; null: this thread alone.
  virtual void read(const Box3& box, int64_t channel, std::byte* out, ThreadPool* pool = nullptr) const = 0;

 protected:
  VolumeInfo info_;
  std::vector<std::string> files_;
};

struct WriteOptions {
  std::string codec;  // "" : the format's default; "none", "lzw", "deflate", "zstd", ...
  Extent3 chunk{};    // zero: the format's default
  int level = -1;     // of the codec; -1: its default
};

// A volume that comes slab by slab, the lowest first: whole slices of all channels.
struct SlabSource {
  VolumeInfo info;     // of the whole volume
  int64_t slices = 1;  // at a time; a format whose chunks are thicker asks for more
  std::function<const Volume&(int64_t z_begin, int64_t z_end)> read;  // holds until the next call
};
SlabSource slabs_of(const Volume& volume);  // one slab, the volume itself
// Hands out every slab in turn, each but the last of a multiple of `chunk_z` slices.
using UseSlab = std::function<void(int64_t z_begin, const Volume& slab)>;
void each_slab(const SlabSource& source, int64_t chunk_z, const UseSlab& use);

struct FormatEntry {
  std::string name;
  std::string help;                   // one line
  std::vector<std::string> suffixes;  // ".tif", ".nii.gz"; the first is the default for writing
  std::vector<std::string> codecs;    // that can be written
  // True where the first bytes of the file (up to 512; empty for a folder) say that it is this format.
  bool (*matches)(std::span<const std::byte> head, const std::filesystem::path& path);
  std::unique_ptr<VolumeReader> (*open)(const std::string& path);
  // Whole or not at all. Null where the format cannot be written.
  void (*write)(const std::string& path, const Volume& volume, const WriteOptions& options, ThreadPool* pool);
  std::vector<DType> types{};  // that can be written; empty: every type a volume is stored in
  // Opens `path:dataset`. Null where a file holds one volume; `open` alone then means the only dataset.
  std::unique_ptr<VolumeReader> (*open_dataset)(const std::string& path, const std::string& dataset) = nullptr;
  bool keeps_scale = false;  // VolumeInfo's scale and offset survive writing
  // The same from slabs. Null where a file can only be made from a whole volume.
  void (*write_slabs)(const std::string& path, const SlabSource& source, const WriteOptions& options,
                      ThreadPool* pool) = nullptr;
};

const std::vector<FormatEntry>& all_formats();

// `name` is `path`, or `path:dataset`; a file whose full name exists wins. Error names the file and what is wrong.
std::unique_ptr<VolumeReader> open_volume(const std::string& name);
Volume read_volume(const std::string& name, ThreadPool* pool = nullptr);  // all channels
// The format that the suffix of `name` means; Error where there is none or it cannot be written.
const FormatEntry& format_to_write(const std::string& name);
// By the suffix of `name`, whole or not at all.
void write_volume(const std::string& name, const Volume& volume, const WriteOptions& options = {},
                  ThreadPool* pool = nullptr);
void write_slabs(const std::string& name, const SlabSource& source, const WriteOptions& options, ThreadPool* pool);

}  // namespace vox
