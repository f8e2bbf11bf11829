#include "kernels/persistence.h"

#include "base/error.h"
#include "kernels/persistence_parts.h"

namespace vox {
namespace {

using Border = OrderedGrid::Border;

// Calls copy(keys of the row, its first voxel) for each row.
template <class Copy>
void fill_rows(OrderedGrid& grid, Copy copy) {
  for (int64_t z = 0; z < grid.extent.z; ++z)
    for (int64_t y = 0; y < grid.extent.y; ++y)
      copy(grid.keys.data() + grid.at(z, y, 0), (z * grid.extent.y + y) * grid.extent.x);
}

bool last_at_all(const OrderedGrid& grid, const Merge& merge) {
  return grid.keys[static_cast<size_t>(merge.begin)] != grid.keys[static_cast<size_t>(merge.end)];
}

// Components of what is outside, from the last voxel to the first: they merge with each other or with the space around
// the volume. So a cavity is born where its voxels lose touch with others, and dies with its last voxel.
std::vector<PersistencePair> cavity_pairs(const OrderedGrid& reversed, Connectivity connectivity) {
  const int64_t last = reversed.extent.voxels() - 1;
  std::vector<PersistencePair> pairs;
  for (const Merge& merge : merges_of(reversed, connectivity))
    if (last_at_all(reversed, merge))
      pairs.push_back({last - reversed.voxel(merge.end), last - reversed.voxel(merge.begin)});
  return pairs;
}

// A tunnel through closed cubes is a tunnel through the voxels outside them as vertices, with the space around.
std::vector<PersistencePair> tunnel_pairs_of_cubes(const OrderedGrid& reversed) {
  OrderedGrid with_space(reversed.extent + Extent3{2, 2, 2}, Border::kLast);
  fill_rows(with_space, [&](int32_t* keys, int64_t begin) {
    std::copy_n(reversed.keys.data() + begin, with_space.extent.x, keys);
  });
  const int64_t last = reversed.extent.voxels() - 1;
  std::vector<PersistencePair> pairs = tunnel_pairs(with_space);
  for (PersistencePair& pair : pairs) pair = {last - reversed.voxel(pair.death), last - reversed.voxel(pair.birth)};
  return pairs;
}

}  // namespace

OrderedGrid grid_of(const float* values, const Extent3& extent, Level level) {
  OrderedGrid grid(extent, Border::kLast);
  fill_rows(grid, [&](int32_t* keys, int64_t begin) {
    for (int64_t x = 0; x < extent.x; ++x) keys[x] = order_key(values[begin + x], level);
  });
  return grid;
}

// From the last voxel to the first, amid a space that comes before all of them.
OrderedGrid reversed_grid_of(const float* values, const Extent3& extent, Level level) {
  OrderedGrid grid(extent, Border::kFirst);
  const float* last = values + extent.voxels() - 1;
  fill_rows(grid, [&](int32_t* keys, int64_t begin) {
    for (int64_t x = 0; x < extent.x; ++x) keys[x] = ~order_key(last[-(begin + x)], level);
  });
  return grid;
}

std::vector<PersistencePair> component_pairs(const OrderedGrid& grid, Connectivity connectivity) {
  const int64_t first = std::min_element(grid.keys.begin(), grid.keys.end()) - grid.keys.begin();
  std::vector<PersistencePair> pairs{{grid.voxel(first), PersistencePair::kNever}};
  for (const Merge& merge : merges_of(grid, connectivity))
    if (last_at_all(grid, merge)) pairs.push_back({grid.voxel(merge.begin), grid.voxel(merge.end)});
  return pairs;
}

std::vector<PersistencePair> persistence_pairs_cpu(const float* values, const Extent3& extent, int dimension,
                                                   const PersistenceOptions& options) {
  VOX_ASSERT(dimension >= 0 && dimension <= 2);
  if (extent.voxels() == 0) return {};
  const bool vertices = options.construction == Construction::kVertices;
  const Connectivity inside = vertices ? Connectivity::kFaces : Connectivity::kCorners;
  const Connectivity outside = vertices ? Connectivity::kCorners : Connectivity::kFaces;
  if (dimension == 0) return component_pairs(grid_of(values, extent, options.level), inside);
  if (dimension == 2) return cavity_pairs(reversed_grid_of(values, extent, options.level), outside);
  return vertices ? tunnel_pairs(grid_of(values, extent, options.level))
                  : tunnel_pairs_of_cubes(reversed_grid_of(values, extent, options.level));
}

}  // namespace vox
