// A folder of PNG slices, in the natural order of their names (s2 before s10). Slices of fewer than eight bits keep
// their values (a mask is 0 and 1), unless some slices of the stack have eight: then they were 0 and 255 before a
// program saved them smaller, as PNG scales them, and become so again.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "io/folder_write.h"
#include "io/format.h"
#include "io/png_file.h"

namespace vox {
namespace {

std::vector<std::string> slices_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code problem;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, problem)) {
    const std::string name = entry.path().filename().string();
    if (ends_with(name, ".png") && name.front() != '.') names.push_back(entry.path().string());
  }
  std::sort(names.begin(), names.end(), natural_less);
  return names;
}

class PngStackReader final : public VolumeReader {
 public:
  explicit PngStackReader(const std::string& folder) : slices_(slices_in(folder)) {
    VOX_CHECK(!slices_.empty(), folder, ": there are no PNG images in this folder");
    int least = 16, most = 0;
    for (const std::string& slice : slices_) {
      shapes_.push_back(png::read_shape(slice));
      const png::Shape &shape = shapes_.back(), &first = shapes_.front();
      VOX_CHECK(shape.height == first.height && shape.width == first.width, slice, ": this slice is ", shape.height,
                "x", shape.width, ", but ", slices_.front(), " is ", first.height, "x", first.width);
      least = std::min(least, shape.bits);
      most = std::max(most, shape.bits);
    }
    VOX_CHECK(most < 16 || least == 16, folder, ": slices of 16 bits are mixed with slices of ", least,
              "; expected one kind");
    scaled_ = least < most;
    info_.dtype = most == 16 ? DType::kUInt16 : DType::kUInt8;
    info_.extent = {static_cast<int64_t>(slices_.size()), shapes_.front().height, shapes_.front().width};
    info_.format = "png_stack";
    info_.codec = "deflate";
    info_.chunk = {1, info_.extent.y, info_.extent.x};
  }

  void read(const Box3& box, int64_t channel, std::byte* out, ThreadPool* pool) const override {
    VOX_ASSERT(!box.empty() && whole(info_.extent).contains(box) && channel == 0);
    const int64_t slice_bytes = box.extent().y * box.extent().x * size_of(info_.dtype), count = box.extent().z;
    const auto run = [&](int64_t i) { read_slice(box.begin.z + i, box, out + i * slice_bytes); };
    if (pool && count > 1) return pool->for_each(count, run);
    for (int64_t i = 0; i < count; ++i) run(i);
  }

 private:
  void read_slice(int64_t z, const Box3& box, std::byte* out) const {
    const Extent3& extent = info_.extent;
    const int64_t size = size_of(info_.dtype), row = box.extent().x * size;
    const png::Shape& shape = shapes_[static_cast<size_t>(z)];
    std::vector<std::byte> image(static_cast<size_t>(extent.y * extent.x * size));
    png::read_image(slices_[static_cast<size_t>(z)], shape, info_.dtype, image.data());
    if (scaled_ && shape.bits < 8) {
      const int factor = 255 / ((1 << shape.bits) - 1);
      for (std::byte& value : image) value = static_cast<std::byte>(static_cast<int>(value) * factor);
    }
    for (int64_t y = box.begin.y; y < box.end.y; ++y, out += row)
      std::memcpy(out, image.data() + (y * extent.x + box.begin.x) * size, static_cast<size_t>(row));
  }

  const std::vector<std::string> slices_;
  std::vector<png::Shape> shapes_;
  bool scaled_ = false;
};

bool matches(std::span<const std::byte> head, const fs::path& path) {
  return head.empty() && fs::is_directory(path) && !slices_in(path).empty();
}

std::unique_ptr<VolumeReader> open(const std::string& path) {
  return std::make_unique<PngStackReader>(path);
}

bool holds_only_slices(const fs::path& folder) {
  return std::all_of(fs::directory_iterator(folder), fs::directory_iterator(),
                     [](const fs::directory_entry& entry) { return ends_with(entry.path().string(), ".png"); });
}

void write(const std::string& path, const Volume& volume, const WriteOptions& options, ThreadPool* pool) {
  const VolumeInfo& info = volume.info;
  VOX_CHECK(options.codec.empty() || options.codec == "deflate", path, ": PNG slices are packed by deflate, not \"",
            options.codec, "\"");
  VOX_CHECK(info.channels == 1, path, ": a PNG stack holds one channel, not ", info.channels);
  FolderWrite folder(path, holds_only_slices);
  const png::Shape shape{info.extent.y, info.extent.x, static_cast<int>(8 * size_of(info.dtype))};
  const size_t digits = std::to_string(info.extent.z - 1).size();
  const auto write_slice = [&](int64_t z) {
    std::string number = std::to_string(z);
    number.insert(0, digits - number.size(), '0');
    const std::byte* rows = volume.data.data() + z * info.extent.y * info.extent.x * size_of(info.dtype);
    write_plainly(folder.temporary() / (number + ".png"),
                  png::encode_image(rows, shape, options.level < 0 ? 4 : options.level));
  };
  if (pool)
    pool->for_each(info.extent.z, write_slice);
  else
    for (int64_t z = 0; z < info.extent.z; ++z) write_slice(z);
  folder.commit();
}

}  // namespace

FormatEntry png_stack_format() {
  FormatEntry entry{"png_stack", "Folder of grey PNG slices in the natural order of their names",
                    {".pngs"},   {"deflate"},
                    matches,     open,
                    write};
  entry.types = {DType::kUInt8, DType::kUInt16};
  return entry;
}

}  // namespace vox
