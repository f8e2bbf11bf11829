// The inclusion of a map in the union of both takes features along; a feature of the image is born with one of the map
// and dies with one of the union. Pairs of the image are found in one run: with the births ordered by the map and the
// deaths ordered by the union. Features whose images die with the same feature of the union match.
#include "kernels/persistence_matching.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "kernels/persistence_parts.h"
#include "kernels/tunnel_matching.h"

namespace vox {
namespace {

using Places = std::unordered_map<int64_t, int64_t>;  // of something that a pair is known by -> its place in the list

enum class Sweep { kForward, kReversed };
OrderedGrid union_of(const OrderedGrid& a, const OrderedGrid& b, Sweep sweep) {
  OrderedGrid either = a;
  for (size_t i = 0; i < either.keys.size(); ++i)
    either.keys[i] = sweep == Sweep::kForward ? std::min(a.keys[i], b.keys[i]) : std::max(a.keys[i], b.keys[i]);
  return either;
}

int32_t key(const OrderedGrid& grid, int64_t place) {
  return grid.keys[static_cast<size_t>(place)];
}

Places by_birth(const std::vector<PersistencePair>& pairs) {
  Places places;
  for (size_t i = 0; i < pairs.size(); ++i) places[pairs[i].birth] = static_cast<int64_t>(i);
  return places;
}

// One run over the union: where it merges components, the younger of them by each map.
PersistenceMatching match_components(const OrderedGrid& a, const OrderedGrid& b) {
  PersistenceMatching found{
      component_pairs(a, Connectivity::kFaces), component_pairs(b, Connectivity::kFaces), {{0, 0}}};
  const Places places_a = by_birth(found.a), places_b = by_birth(found.b);
  const OrderedGrid either = union_of(a, b, Sweep::kForward);
  const OrderedGrid* orders[2] = {&a, &b};
  for (const Merge& merge : merges_of(either, Connectivity::kFaces, orders)) {
    const int32_t death = key(either, merge.end);
    const auto [of_a, of_b] = merge.begin_by;
    if (key(a, of_a) >= death || key(b, of_b) >= death) continue;  // born too late to have an image
    found.matches.push_back({places_a.at(a.voxel(of_a)), places_b.at(b.voxel(of_b))});
  }
  return found;
}

// One run over each map, reversed: where it separates cavities, the last voxel of the lesser one by the union.
Places cavities_of(std::vector<PersistencePair>& pairs, const OrderedGrid& map, const OrderedGrid& either) {
  const int64_t last = map.extent.voxels() - 1;
  const OrderedGrid* orders[1] = {&either};
  Places deaths;  // in the union
  for (const Merge& merge : merges_of(map, Connectivity::kCorners, orders)) {
    if (key(map, merge.begin) == key(map, merge.end)) continue;
    pairs.push_back({last - map.voxel(merge.end), last - map.voxel(merge.begin)});
    const int64_t death = merge.begin_by[0];
    if (key(either, death) < key(map, merge.end)) deaths[death] = static_cast<int64_t>(pairs.size()) - 1;
  }
  return deaths;
}
PersistenceMatching match_cavities(const OrderedGrid& a, const OrderedGrid& b) {
  const OrderedGrid either = union_of(a, b, Sweep::kReversed);
  PersistenceMatching found;
  const Places of_a = cavities_of(found.a, a, either), of_b = cavities_of(found.b, b, either);
  for (const auto& [death, place] : of_a)
    if (const auto other = of_b.find(death); other != of_b.end()) found.matches.push_back({place, other->second});
  std::sort(found.matches.begin(), found.matches.end());
  return found;
}

}  // namespace

PersistenceMatching match_persistence_cpu(const float* a, const float* b, const Extent3& extent, int dimension,
                                          Level level) {
  VOX_ASSERT(dimension >= 0 && dimension <= 2);
  if (extent.voxels() == 0) return {};
  if (dimension == 2) return match_cavities(reversed_grid_of(a, extent, level), reversed_grid_of(b, extent, level));
  const OrderedGrid grid_a = grid_of(a, extent, level), grid_b = grid_of(b, extent, level);
  if (dimension == 0) return match_components(grid_a, grid_b);
  return match_tunnels(grid_a, grid_b, union_of(grid_a, grid_b, Sweep::kForward));
}

}  // namespace vox
