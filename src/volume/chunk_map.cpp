// Boxes of a dense chunk file, mapped.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/span.h"
#include "volume/chunk_store.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22  // Linux 5.14; older kernels refuse it and map on first touch
#endif

namespace vox {
namespace {

const int64_t kPage = sysconf(_SC_PAGESIZE);

class Mapping {
 public:
  Mapping(const InputFile& file, int64_t offset, int64_t bytes) : bytes_(static_cast<size_t>(bytes)) {
    data_ = mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, file.descriptor(), offset);
    if (data_ == MAP_FAILED) throw_system_error("map", file.path(), errno);
  }
  ~Mapping() { munmap(data_, bytes_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_;
  size_t bytes_;
};

int64_t page_floor(int64_t at) {
  return at / kPage * kPage;
}

// Brings bytes [begin, end) of the mapping in now, in one call instead of a fault for every few pages; a disk that
// fails is an error here, where it would be a signal on first touch.
void populate(const Mapping& mapping, int64_t begin, int64_t end, const InputFile& file) {
  const Span span("storage");
  const int64_t first = page_floor(begin);
  pretend_slow_disk(end - first);
  const int result = madvise(mapping.data() + first, static_cast<size_t>(end - first), MADV_POPULATE_READ);
  if (result != 0 && errno != EINVAL) throw_system_error("read", file.path(), EIO);
}

}  // namespace

bool ChunkFile::dense() const {
  return header_.chunk.x == header_.extent.x && header_.chunk.y == header_.extent.y;
}

int64_t ChunkFile::mapped_bytes(const Box3& box) const {
  const int64_t row = header_.extent.x * size_of(static_cast<DType>(header_.dtype));
  const auto pages = [](int64_t bytes) { return page_floor(bytes + kPage - 1) + kPage; };  // wherever they begin
  const int64_t apart = box.extent().z * pages(box.extent().y * row);
  return std::min(apart, pages(box.extent().z * header_.extent.y * row));  // small slices share pages
}

void ChunkFile::verify_slices(int64_t z_begin, int64_t z_end) const {
  for (int64_t chunk = z_begin / header_.chunk.z; chunk * header_.chunk.z < z_end; ++chunk) {
    if (verified_[static_cast<size_t>(chunk)].load(std::memory_order_relaxed)) continue;
    thread_local std::vector<std::byte> voxels;
    load_chunk(index_[static_cast<size_t>(chunk)], index_[static_cast<size_t>(chunk)].bytes, voxels);
    verified_[static_cast<size_t>(chunk)].store(true, std::memory_order_relaxed);
  }
}

MappedBox ChunkFile::map(const Box3& box) const {
  VOX_ASSERT(dense());
  verify_slices(box.begin.z, box.end.z);
  const Extent3& extent = header_.extent;
  const int64_t row = extent.x * size_of(static_cast<DType>(header_.dtype)), slice = extent.y * row;
  const int64_t first = index_[0].offset + box.begin.z * slice + box.begin.y * row;
  const int64_t last = index_[0].offset + (box.end.z - 1) * slice + box.end.y * row;
  const int64_t begin = page_floor(first);
  auto mapping = std::make_shared<const Mapping>(file_, begin, last - begin);
  for (int64_t z = 0; z < box.extent().z; ++z) {
    const int64_t at = first - begin + z * slice;
    populate(*mapping, at, at + box.extent().y * row, file_);
  }
  Box3 wide = box;
  wide.begin.x = 0, wide.end.x = extent.x;
  return {wide, mapping->data() + (first - begin), mapped_bytes(box), mapping};
}

}  // namespace vox
