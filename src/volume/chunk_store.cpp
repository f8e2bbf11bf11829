#include "volume/chunk_store.h"

#if VOX_HAVE_LZ4
#include <lz4.h>
#endif

#include <algorithm>
#include <cstring>

#include "base/hash.h"

namespace vox {
namespace {

constexpr int64_t kWidest = 512;          // voxels in x; wider volumes are cut
constexpr int64_t kTargetBytes = 400000;  // of a chunk: few enough reads, little enough read in vain
constexpr int64_t kDenseBytes = 1600000;  // of the slices that share a checksum
constexpr int64_t kDataAlignment = 4096;

template <class T>
std::span<std::byte> writable_bytes(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}

int64_t parts(int64_t extent, int64_t chunk) {
  return (extent + chunk - 1) / chunk;
}

uint32_t header_crc(ChunkHeader header, const std::vector<ChunkEntry>& index) {
  header.crc = 0;
  return crc32c(std::as_bytes(std::span(index)), crc32c(std::as_bytes(std::span(&header, 1))));
}

bool is_dense(const ChunkHeader& header) {
  return header.chunk.x == header.extent.x && header.chunk.y == header.extent.y;
}

bool is_constant(const std::byte* data, int64_t bytes, int64_t element) {
  return std::memcmp(data, data + element, static_cast<size_t>(bytes - element)) == 0;
}

// Rows of `box` from `source`, which is dense and begins at `from.begin`, to `out`, which is dense over `to`.
void copy_rows(const Box3& box, const std::byte* source, const Box3& from, std::byte* out, const Box3& to,
               int64_t element) {
  const Extent3 in = from.extent(), target = to.extent();
  const auto row_bytes = static_cast<size_t>((box.end.x - box.begin.x) * element);
  for (int64_t z = box.begin.z; z < box.end.z; ++z) {
    for (int64_t y = box.begin.y; y < box.end.y; ++y) {
      const int64_t source_at = ((z - from.begin.z) * in.y + y - from.begin.y) * in.x + box.begin.x - from.begin.x;
      const int64_t out_at = ((z - to.begin.z) * target.y + y - to.begin.y) * target.x + box.begin.x - to.begin.x;
      std::memcpy(out + out_at * element, source + source_at * element, row_bytes);
    }
  }
}

std::vector<std::byte>& scratch() {  // of this thread; at most two chunks
  thread_local std::vector<std::byte> bytes;
  return bytes;
}

}  // namespace

Extent3 chunk_shape(const Extent3& extent, DType dtype) {
  const bool dense = extent.x <= kWidest;
  Extent3 chunk = dense ? Extent3{1, extent.y, extent.x} : Extent3{1, std::min<int64_t>(extent.y, 64), kWidest / 2};
  const int64_t target = dense ? kDenseBytes : kTargetBytes;
  while (chunk.z < extent.z && 2 * chunk.voxels() * size_of(dtype) <= target) chunk.z *= 2;
  chunk.z = std::min(chunk.z, extent.z);
  return chunk;
}

ChunkWriter::ChunkWriter(const fs::path& path, const VolumeInfo& info, uint64_t key) : file_(path) {
  header_.key = key;
  header_.dtype = static_cast<int64_t>(info.dtype);
  header_.extent = info.extent;
  header_.chunk = chunk_shape(info.extent, info.dtype);
  header_.scale = info.scale;
  header_.offset = info.offset;
  const Extent3 &extent = header_.extent, &chunk = header_.chunk;
  header_.chunks = parts(extent.z, chunk.z) * parts(extent.y, chunk.y) * parts(extent.x, chunk.x);
  const auto front = static_cast<int64_t>(sizeof(ChunkHeader)) + header_.chunks * int64_t{sizeof(ChunkEntry)};
  file_.write(std::vector<std::byte>(static_cast<size_t>(parts(front, kDataAlignment) * kDataAlignment)));
  chunk_.resize(static_cast<size_t>(chunk.voxels() * size_of(info.dtype)));
}

void ChunkWriter::write_slab(int64_t z_begin, int64_t z_end, const std::byte* voxels) {
  const int64_t element = size_of(static_cast<DType>(header_.dtype));
  const Extent3 &extent = header_.extent, &chunk = header_.chunk;
  VOX_ASSERT(z_begin % chunk.z == 0 && (z_end % chunk.z == 0 || z_end == extent.z));
  const Box3 slab{{z_begin, 0, 0}, {z_end, extent.y, extent.x}};
  for (int64_t z = z_begin; z < z_end; z += chunk.z) {
    for (int64_t y = 0; y < extent.y; y += chunk.y) {
      for (int64_t x = 0; x < extent.x; x += chunk.x) {
        const Box3 box{{z, y, x}, min(Extent3{z, y, x} + chunk, extent)};
        copy_rows(box, voxels, slab, chunk_.data(), box, element);
        index_.push_back(store(chunk_.data(), box.voxels() * element));
      }
    }
  }
}

ChunkEntry ChunkWriter::store(const std::byte* chunk, int64_t bytes) {
  const int64_t element = size_of(static_cast<DType>(header_.dtype));
  ChunkEntry entry;
  const bool dense = is_dense(header_);
  if (!dense && is_constant(chunk, bytes, element)) {
    entry.kind = ChunkEntry::kConstant;
    std::memcpy(&entry.offset, chunk, static_cast<size_t>(element));
    return entry;
  }
  std::span<const std::byte> stored(chunk, static_cast<size_t>(bytes));
#if VOX_HAVE_LZ4
  packed_.resize(static_cast<size_t>(bytes / 2));
  const int packed =
      dense ? 0
            : LZ4_compress_default(reinterpret_cast<const char*>(chunk), reinterpret_cast<char*>(packed_.data()),
                                   static_cast<int>(bytes), static_cast<int>(packed_.size()));
  if (packed > 0) {
    entry.kind = ChunkEntry::kLz4;
    stored = std::span<const std::byte>(packed_).first(static_cast<size_t>(packed));
  }
#endif
  entry.offset = file_.position();
  entry.bytes = static_cast<uint32_t>(stored.size());
  entry.crc = crc32c(stored);
  file_.write(stored);
  return entry;
}

void ChunkWriter::commit() {
  VOX_ASSERT(static_cast<int64_t>(index_.size()) == header_.chunks);
  header_.crc = header_crc(header_, index_);
  file_.write_at(0, std::as_bytes(std::span(&header_, 1)));
  file_.write_at(sizeof(ChunkHeader), std::as_bytes(std::span(index_)));
  file_.commit();
}

ChunkFile::ChunkFile(const fs::path& path, uint64_t key, Trust trust) : file_(path) {
  const auto require = [&](bool good) {
    if (!good) throw DamagedChunks(concat(path.string(), ": the cached copy is damaged; delete it to have it rebuilt"));
  };
  require(file_.size() >= static_cast<int64_t>(sizeof(ChunkHeader)));
  file_.read(0, std::as_writable_bytes(std::span(&header_, 1)));
  const ChunkHeader expected;
  require(std::memcmp(header_.magic, expected.magic, sizeof(expected.magic)) == 0 && header_.key == key);
  const int64_t most = (file_.size() - static_cast<int64_t>(sizeof(ChunkHeader))) / int64_t{sizeof(ChunkEntry)};
  require(header_.chunks > 0 && header_.chunks <= most);
  index_.resize(static_cast<size_t>(header_.chunks));
  file_.read(sizeof(ChunkHeader), writable_bytes(index_));
  require(header_crc(header_, index_) == header_.crc);
  for (const ChunkEntry& entry : index_)
    require(entry.kind == ChunkEntry::kConstant || entry.offset + entry.bytes <= file_.size());
  verified_ = std::make_unique<std::atomic<bool>[]>(index_.size());
  for (size_t i = 0; i < index_.size(); ++i) verified_[i] = trust == Trust::kAsWritten;
}

VolumeInfo ChunkFile::info() const {
  VolumeInfo info;
  info.dtype = static_cast<DType>(header_.dtype);
  info.extent = header_.extent;
  info.scale = header_.scale;
  info.offset = header_.offset;
  return info;
}

struct ChunkFile::Target {
  Box3 box;  // that `out` holds, dense
  std::byte* out;
};

int64_t ChunkFile::read(const Box3& box, std::byte* out) const {
  const Extent3 &extent = header_.extent, &chunk = header_.chunk;
  const int64_t along_y = parts(extent.y, chunk.y), along_x = parts(extent.x, chunk.x);
  int64_t bytes = 0;
  for (int64_t z = box.begin.z / chunk.z; z * chunk.z < box.end.z; ++z) {
    for (int64_t y = box.begin.y / chunk.y; y * chunk.y < box.end.y; ++y) {
      for (int64_t x = box.begin.x / chunk.x; x * chunk.x < box.end.x; ++x) {
        const Extent3 begin{z * chunk.z, y * chunk.y, x * chunk.x};
        bytes += read_chunk((z * along_y + y) * along_x + x, {begin, min(begin + chunk, extent)}, {box, out});
      }
    }
  }
  return bytes;
}

int64_t ChunkFile::read_chunk(int64_t number, const Box3& chunk, const Target& target) const {
  const ChunkEntry& entry = index_[static_cast<size_t>(number)];
  const int64_t element = size_of(static_cast<DType>(header_.dtype));
  const Box3 wanted = intersect(chunk, target.box);
  std::atomic<bool>& verified = verified_[static_cast<size_t>(number)];
  const bool whole_rows = chunk.begin.x == target.box.begin.x && chunk.end.x == target.box.end.x;
  if (entry.kind == ChunkEntry::kRaw && whole_rows && verified.load(std::memory_order_relaxed))
    return read_rows(entry, chunk, target);
  std::vector<std::byte>& whole_chunk = scratch();
  const int64_t bytes = load_chunk(entry, chunk.voxels() * element, whole_chunk);
  verified.store(true, std::memory_order_relaxed);
  copy_rows(wanted, whole_chunk.data(), chunk, target.out, target.box, element);
  return bytes;
}

// The rows of one slice lie together both in the chunk and in the block: one read per slice.
int64_t ChunkFile::read_rows(const ChunkEntry& entry, const Box3& chunk, const Target& target) const {
  const Box3 wanted = intersect(chunk, target.box);
  const int64_t row = chunk.extent().x * size_of(static_cast<DType>(header_.dtype));
  const int64_t bytes = wanted.extent().y * row;
  for (int64_t z = wanted.begin.z; z < wanted.end.z; ++z) {
    const int64_t in_chunk = (z - chunk.begin.z) * chunk.extent().y + wanted.begin.y - chunk.begin.y;
    const int64_t in_block = (z - target.box.begin.z) * target.box.extent().y + wanted.begin.y - target.box.begin.y;
    file_.read(entry.offset + in_chunk * row, {target.out + in_block * row, static_cast<size_t>(bytes)});
  }
  return bytes * wanted.extent().z;
}

// The voxels of a chunk at the front of `chunk`; what was read in packed form lies behind them.
int64_t ChunkFile::load_chunk(const ChunkEntry& entry, int64_t raw_bytes, std::vector<std::byte>& chunk) const {
  const auto raw = static_cast<size_t>(raw_bytes);
  chunk.resize(raw + (entry.kind == ChunkEntry::kLz4 ? entry.bytes : 0));
  const int64_t element = size_of(static_cast<DType>(header_.dtype));
  if (entry.kind == ChunkEntry::kConstant) {
    for (int64_t i = 0; i < raw_bytes; i += element)
      std::memcpy(chunk.data() + i, &entry.offset, static_cast<size_t>(element));
    return 0;
  }
  const std::span<std::byte> stored = entry.kind == ChunkEntry::kLz4 ? std::span(chunk).subspan(raw) : std::span(chunk);
  bool good = stored.size() == entry.bytes;
  if (good) file_.read(entry.offset, stored);
  good = good && crc32c(stored) == entry.crc;
#if VOX_HAVE_LZ4
  if (good && entry.kind == ChunkEntry::kLz4)
    good = LZ4_decompress_safe(reinterpret_cast<const char*>(stored.data()), reinterpret_cast<char*>(chunk.data()),
                               static_cast<int>(stored.size()), static_cast<int>(raw)) == static_cast<int>(raw);
#else
  good = good && entry.kind == ChunkEntry::kRaw;
#endif
  if (!good) throw DamagedChunks(concat(file_.path(), ": a chunk of the cached copy is damaged"));
  return entry.bytes;
}

}  // namespace vox
