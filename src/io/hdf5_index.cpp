#ifdef VOX_HAVE_HDF5
#include "io/hdf5_index.h"

#include <algorithm>
#include <cstring>

namespace vox::h5 {
namespace {

constexpr int kMessageLayout = 0x08, kMessageContinuation = 0x10, kLayoutChunked = 2;
constexpr uint64_t kUndefined = ~uint64_t{0};
constexpr size_t kMostChunks = size_t{1} << 24;

template <class T>
T get(std::span<const std::byte> bytes, size_t at) {
  T value{};
  if (at + sizeof(T) <= bytes.size()) std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

struct Block {
  uint64_t address, bytes;
};

// The B-tree's address, from the layout message of a version 1 object header; undefined where it is another kind.
uint64_t tree_address(const InputFile& file, uint64_t header) {
  std::vector<std::byte> prefix(16);
  file.read(static_cast<int64_t>(header), prefix);
  if (get<uint8_t>(prefix, 0) != 1) return kUndefined;
  std::vector<Block> blocks{{header + 16, get<uint32_t>(prefix, 8)}};
  for (size_t i = 0; i < blocks.size() && i < 64; ++i) {
    if (blocks[i].bytes > 1 << 20 || blocks[i].address >= static_cast<uint64_t>(file.size())) return kUndefined;
    std::vector<std::byte> block(static_cast<size_t>(blocks[i].bytes));
    file.read(static_cast<int64_t>(blocks[i].address), block);
    for (size_t at = 0; at + 8 <= block.size();) {
      const int type = get<uint16_t>(block, at);
      const size_t size = get<uint16_t>(block, at + 2), data = at + 8;
      if (type == kMessageContinuation) blocks.push_back({get<uint64_t>(block, data), get<uint64_t>(block, data + 8)});
      if (type == kMessageLayout) {
        const bool chunked = get<uint8_t>(block, data) == 3 && get<uint8_t>(block, data + 1) == kLayoutChunked;
        return chunked ? get<uint64_t>(block, data + 3) : kUndefined;
      }
      at = data + size;
    }
  }
  return kUndefined;
}

// What is still to be found in one walk down the tree.
struct Walk {
  const InputFile& file;
  const size_t rank;
  ChunkIndex* index;
  int64_t bytes_left;  // of the file, for nodes: no two of them share a byte, or the walk might never end
  size_t chunks = 0;
};

// Node: "TREE", kind, level, entries, siblings; then key, child, key, child, ..., key.
bool read_tree(Walk& walk, uint64_t address, int level_above) {
  constexpr size_t kHead = 24;
  const InputFile& file = walk.file;
  std::vector<std::byte> head(kHead);
  VOX_CHECK(address < static_cast<uint64_t>(file.size()), file.path(),
            ": the index of its chunks points behind the end of the file; the file is damaged");
  file.read(static_cast<int64_t>(address), head);
  const int level = get<uint8_t>(head, 5);
  const size_t entries = get<uint16_t>(head, 6), key = 8 + 8 * (walk.rank + 1), step = key + 8;
  if (std::memcmp(head.data(), "TREE", 4) != 0 || get<uint8_t>(head, 4) != 1 || level >= level_above) return false;
  walk.bytes_left -= static_cast<int64_t>(kHead + entries * step);
  VOX_CHECK(walk.bytes_left >= 0, file.path(), ": the index of its chunks runs in circles; the file is damaged");
  std::vector<std::byte> node(entries * step);
  file.read(static_cast<int64_t>(address + kHead), node);
  for (size_t i = 0; i < entries; ++i) {
    const size_t at = i * step;
    const uint64_t child = get<uint64_t>(node, at + key);
    if (level > 0) {
      if (!read_tree(walk, child, level)) return false;
      continue;
    }
    if (++walk.chunks > kMostChunks) return false;
    std::vector<hsize_t> origin(walk.rank);
    for (size_t axis = 0; axis < walk.rank; ++axis) origin[axis] = get<uint64_t>(node, at + 8 + 8 * axis);
    const ChunkPlace place{child, get<uint32_t>(node, at), get<uint32_t>(node, at + 4)};
    const uint64_t size = static_cast<uint64_t>(file.size());
    VOX_CHECK(place.address <= size && place.bytes <= size - place.address, file.path(), ": a chunk of ", place.bytes,
              " bytes at ", place.address, " lies behind the end of the file (", file.size(),
              " bytes); was it copied or downloaded completely?");
    walk.index->add(std::move(origin), place);
  }
  return true;
}

}  // namespace

void ChunkIndex::add(std::vector<hsize_t> origin, const ChunkPlace& place) {
  entries_.push_back({std::move(origin), place});
}

void ChunkIndex::finish() {
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return a.origin < b.origin; });
}

ChunkPlace ChunkIndex::find(const std::vector<hsize_t>& origin) const {
  const auto found = std::lower_bound(entries_.begin(), entries_.end(), origin,
                                      [](const Entry& entry, const auto& wanted) { return entry.origin < wanted; });
  return found != entries_.end() && found->origin == origin ? found->place : ChunkPlace{};
}

std::optional<ChunkIndex> read_chunk_index(const InputFile& file, hid_t file_id, hid_t dataset, size_t rank) {
  const Properties creation(H5Fget_create_plist(file_id));
  size_t address_bytes = 0, size_bytes = 0;
  if (!creation || H5Pget_sizes(creation.get(), &address_bytes, &size_bytes) < 0) return std::nullopt;
  if (address_bytes != 8 || size_bytes != 8) return std::nullopt;
  ObjectFacts facts;
  if (object_facts(dataset, &facts) < 0) return std::nullopt;
  const uint64_t root = tree_address(file, facts.addr);
  ChunkIndex index;
  Walk walk{.file = file, .rank = rank, .index = &index, .bytes_left = file.size()};
  if (root == kUndefined || !read_tree(walk, root, 64)) return std::nullopt;
  index.finish();
  return index;
}

}  // namespace vox::h5
#endif
