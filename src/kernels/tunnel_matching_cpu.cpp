// Tunnels of the image of a map in the union, by reducing columns: squares in the order of the union, rows in that of
// the map. Where a voxel has the same earlier neighbours in both, the same cells come with it, and those cancel as in
// kernels/star_gradient.h: before the voxel comes, no column has any of them. All others are rows and columns of their
// own, but for squares that go with a cube of the union: these depend on columns before them in any order of rows.
//
// What is born on the map's last level has no image, and nothing that counts dies on the union's first level; so within
// these two each takes over the order of the other. Of a prediction and its label that is where orders differ most.
#include "kernels/tunnel_matching.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "kernels/critical_cells.h"
#include "kernels/radix_sort.h"
#include "kernels/tunnel_reduction.h"

namespace vox {
namespace {

using Places = std::unordered_map<uint32_t, int64_t>;  // of an edge or a square -> place of the pair in the list

constexpr uint32_t kCriticalColumn = uint32_t{1} << 31;  // added to a square

enum class AtLevel { kFirst, kLast };

// A grid in the same order, but that the voxels of its first or last level are in the order of another grid.
OrderedGrid ordered_within(AtLevel level, const OrderedGrid& grid, const OrderedGrid& other) {
  std::vector<uint64_t> order, same;
  order.reserve(static_cast<size_t>(grid.extent.voxels()));
  for (int64_t z = 0; z < grid.extent.z; ++z)
    for (int64_t y = 0; y < grid.extent.y; ++y)
      for (int64_t place = grid.at(z, y, 0), end = place + grid.extent.x; place < end; ++place)
        order.push_back(grid.sortable(place, static_cast<uint32_t>(place)));
  sort_by_upper_half(order);
  const uint64_t key = (level == AtLevel::kFirst ? order.front() : order.back()) >> 32;
  const auto before = [](uint64_t entry, uint64_t bound) { return entry >> 32 < bound; };
  const auto begin = std::lower_bound(order.begin(), order.end(), key, before);
  const auto end = std::lower_bound(begin, order.end(), key + 1, before);
  for (auto at = begin; at != end; ++at)
    same.push_back(other.sortable(static_cast<uint32_t>(*at), static_cast<uint32_t>(*at)));
  sort_by_upper_half(same);
  std::copy(same.begin(), same.end(), begin);
  OrderedGrid ranked(grid.extent, OrderedGrid::Border::kLast);
  for (size_t i = 0; i < order.size(); ++i) ranked.keys[static_cast<uint32_t>(order[i])] = static_cast<int32_t>(i);
  return ranked;
}

// The map's own tunnels, and where they stand in the list: by the edges that begin them.
Places own_tunnels(std::vector<PersistencePair>& pairs, const OrderedGrid& map) {
  const TunnelCells cells = tunnel_cells_of(map);
  CriticalCells critical = critical_cells_of(map);
  const std::vector<uint32_t> squares = squares_that_end_tunnels(map, cells, critical);
  TunnelReduction reduction(cells, map.keys, take_links_of_loops(cells, critical));
  Places births;
  for (const uint32_t square : squares) {
    const uint32_t edge = reduction.reduce(square);
    VOX_ASSERT(edge != links::kNothing);
    const uint32_t birth = reduction.last_voxel(edge), death = last_voxel_of_square(map, cells, square);
    if (map.keys[birth] == map.keys[death]) continue;
    births[edge] = static_cast<int64_t>(pairs.size());
    pairs.push_back({map.voxel(birth), map.voxel(death)});
  }
  return births;
}

struct ImageMatrix {
  std::vector<uint32_t> links;    // of each edge: kernels/tunnel_cells.h
  std::vector<bool> late;         // of each edge: kernels/tunnel_reduction.h
  std::vector<uint64_t> columns;  // key of the voxel in the union, and a square; in order
};

// Takes what write_star finds: of the map the edges, of the union squares and cubes; of a voxel with whom the same
// cells come in both, all of it.
struct ImageStar {
  const OrderedGrid &map, &either;
  const TunnelCells& cells;
  ImageMatrix& matrix;
  CriticalCells& found;
  uint32_t place;
  bool of_map, of_either;

  void link(uint32_t edge, uint32_t link) {
    const bool taken_apart = links::is_paired(link) && of_map != of_either;
    if (taken_apart && of_either) matrix.columns.push_back(either.sortable(place, square_of(edge, link)));
    if (!of_map) return;
    found.links[edge] = taken_apart ? edge : link;
    if (taken_apart) matrix.late[edge] = true;
  }
  void down(uint32_t neighbour) {
    if (of_map) found.down[place] = neighbour;
  }
  void critical_edge(uint32_t edge, int) {
    if (!of_map) return;
    found.links[edge] = edge;
    found.edges.push_back(map.sortable(place, edge));
  }
  void up(uint32_t cube, uint32_t next) {
    if (of_either) found.up[cube] = cube_or_outside(either, next);
  }
  void critical_square(uint32_t square, uint32_t) {
    if (of_either) found.squares.push_back(either.sortable(place, square));
  }

 private:
  uint32_t square_of(uint32_t edge, uint32_t link) const {  // that the edge is paired with
    const int partner = static_cast<int>(link - links::kPaired), axis = star::axis_of(partner);
    const uint32_t lowest = edge / 3 - (partner < 3 ? cells.step(axis) : 0);
    return lowest * 3 + 3 - edge % 3 - static_cast<uint32_t>(axis);
  }
};

ImageMatrix image_matrix(const TunnelCells& cells, const OrderedGrid& map, const OrderedGrid& either) {
  const size_t places = static_cast<size_t>(map.places());
  ImageMatrix matrix{.links = {}, .late = std::vector<bool>(3 * places), .columns = {}};
  CriticalCells found = no_cells(map);
  EarlierNeighbours in_map(map), in_either(either);
  for (int64_t z = 0; z < map.extent.z; ++z)
    for (int64_t y = 0; y < map.extent.y; ++y) {
      uint32_t place = static_cast<uint32_t>(map.at(z, y, 0));
      const std::vector<uint32_t>&of_map = in_map.of_row(place), &of_either = in_either.of_row(place);
      for (size_t x = 0; x < of_map.size(); ++x, ++place) {
        const bool same = of_map[x] == of_either[x];
        ImageStar star{map, either, cells, matrix, found, place, true, same};
        write_star(star, cells, place, of_map[x]);
        if (same) continue;
        star.of_map = false;
        star.of_either = true;
        write_star(star, cells, place, of_either[x]);
      }
    }
  sort_by_upper_half(found.edges);
  sort_by_upper_half(found.squares);
  matrix.links = take_links_of_loops(cells, found);
  for (const uint32_t square : squares_that_end_tunnels(either, cells, found))
    matrix.columns.push_back(either.sortable(last_voxel_of_square(either, cells, square), square | kCriticalColumn));
  sort_by_upper_half(matrix.columns);  // critical ones stay behind the others of their voxel
  return matrix;
}

// Of each square of the union that ends a tunnel of the map: which.
Places tunnels_of(std::vector<PersistencePair>& pairs, const OrderedGrid& map, const OrderedGrid& either) {
  const Places births = own_tunnels(pairs, map);
  const TunnelCells cells = tunnel_cells_of(map);
  const OrderedGrid map_order = ordered_within(AtLevel::kLast, map, either);
  ImageMatrix matrix = image_matrix(cells, map_order, ordered_within(AtLevel::kFirst, either, map));
  TunnelReduction reduction(cells, map_order.keys, std::move(matrix.links), std::move(matrix.late));
  Places deaths;
  for (const uint64_t column : matrix.columns) {
    const uint32_t square = static_cast<uint32_t>(column) & ~kCriticalColumn;
    const uint32_t edge = reduction.reduce(square);
    VOX_ASSERT(edge != links::kNothing);
    if (square == static_cast<uint32_t>(column)) continue;  // it ends what begins with it
    const uint32_t death = last_voxel_of_square(either, cells, square);
    if (map.keys[reduction.last_voxel(edge)] < either.keys[death]) deaths[square] = births.at(edge);
  }
  return deaths;
}

}  // namespace

PersistenceMatching match_tunnels(const OrderedGrid& a, const OrderedGrid& b, const OrderedGrid& either) {
  PersistenceMatching found;
  const Places of_a = tunnels_of(found.a, a, either), of_b = tunnels_of(found.b, b, either);
  for (const auto& [square, place] : of_a)
    if (const auto other = of_b.find(square); other != of_b.end()) found.matches.push_back({place, other->second});
  std::sort(found.matches.begin(), found.matches.end());
  return found;
}

}  // namespace vox
