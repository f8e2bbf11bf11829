#include "io/chunk_grid.h"

#include <algorithm>
#include <cstring>

namespace vox {

std::vector<ChunkPart> parts_of(const ChunkGrid& grid, const Box3& box, int64_t channel) {
  const Extent3 chunk{grid.chunk[1], grid.chunk[2], grid.chunk[3]};
  Extent3 first, last;
  for (int axis = 0; axis < 3; ++axis) {
    first[axis] = box.begin[axis] / chunk[axis];
    last[axis] = (box.end[axis] - 1) / chunk[axis];
  }
  std::vector<ChunkPart> parts;
  for (int64_t z = first.z; z <= last.z; ++z) {
    for (int64_t y = first.y; y <= last.y; ++y) {
      for (int64_t x = first.x; x <= last.x; ++x) {
        const Extent3 begin{z * chunk.z, y * chunk.y, x * chunk.x};
        const Box3 common = intersect(box, {begin, begin + chunk});
        ChunkPart part;
        part.chunk = {channel / grid.chunk[0], z, y, x};
        part.channel = channel % grid.chunk[0];
        part.box = {common.begin - begin, common.end - begin};
        part.to = common.begin - box.begin;
        parts.push_back(part);
      }
    }
  }
  return parts;
}

namespace {

int64_t element_at(const ChunkGrid& grid, int64_t channel, const Extent3& at) {
  return channel * grid.strides[0] + at.z * grid.strides[1] + at.y * grid.strides[2] + at.x * grid.strides[3];
}

std::byte* row_in(const BoxTarget& target, const Extent3& at) {
  return target.out + ((at.z * target.extent.y + at.y) * target.extent.x + at.x) * size_of(target.dtype);
}

}  // namespace

ByteRange bytes_of(const ChunkGrid& grid, const ChunkPart& part) {
  const int64_t size = size_of(grid.type);
  const Extent3 last = part.box.end - Extent3{1, 1, 1};
  return {element_at(grid, part.channel, part.box.begin) * size, (element_at(grid, part.channel, last) + 1) * size};
}

void copy_part(const ChunkGrid& grid, const ChunkPart& part, const std::byte* chunk, const BoxTarget& target,
               const std::string& path) {
  const int64_t size = size_of(grid.type), count = part.box.extent().x;
  const bool as_it_is =
      grid.strides[3] == 1 && !grid.swap_bytes && grid.type != ElementType::kFloat16 && size == size_of(target.dtype);
  const Extent3 extent = part.box.extent();
  for (int64_t z = 0; z < extent.z; ++z) {
    for (int64_t y = 0; y < extent.y; ++y) {
      const Extent3 row{z, y, 0};
      const std::byte* from = chunk + element_at(grid, part.channel, part.box.begin + row) * size;
      std::byte* to = row_in(target, part.to + row);
      if (as_it_is)
        std::memcpy(to, from, static_cast<size_t>(count * size));
      else
        convert_elements({grid.type, grid.swap_bytes, grid.strides[3], count}, from, to, path);
    }
  }
}

void fill_part(const ChunkPart& part, const std::byte* value, const BoxTarget& target) {
  const int64_t size = size_of(target.dtype);
  const Extent3 extent = part.box.extent();
  const bool same = std::all_of(value, value + size, [&](std::byte b) { return b == value[0]; });
  for (int64_t z = 0; z < extent.z; ++z) {
    for (int64_t y = 0; y < extent.y; ++y) {
      std::byte* to = row_in(target, part.to + Extent3{z, y, 0});
      if (same) {
        std::memset(to, static_cast<int>(value[0]), static_cast<size_t>(extent.x * size));
        continue;
      }
      for (int64_t x = 0; x < extent.x; ++x) std::memcpy(to + x * size, value, static_cast<size_t>(size));
    }
  }
}

}  // namespace vox
