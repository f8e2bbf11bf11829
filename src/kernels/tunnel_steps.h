// The steps that bring a map's tunnels down to the columns of kernels/tunnel_columns.h, for one item each. They can be
// taken side by side: at every moment an edge and what it is linked to stand for the same, so that it does not matter
// which links a step sees.
#pragma once

#include "kernels/tunnel_cells.h"

namespace vox::tunnels {

constexpr int kPlaceBits = 28;
constexpr int32_t kBorderKey = INT32_MAX;
// A link, beside those of kernels/tunnel_cells.h: the edge is paired, and what the square's other edges stand for are
// two or three different edges. Added to its partner.
constexpr uint32_t kBranching = links::kPaired - links::kPairs;

VOX_HOST_DEVICE constexpr bool is_branching(uint32_t link) {
  return link - kBranching < links::kPairs;
}

// Arrays by place and by edge, see kernels/critical_cells.h.
struct Work {
  TunnelCells cells;
  const int32_t* keys;
  uint32_t *links, *up;
};

VOX_HOST_DEVICE uint32_t loaded(const uint32_t* from) {
#ifdef __CUDA_ARCH__
  return __ldcg(from);
#else
  return *from;
#endif
}

// Rows and columns are sorted by the key and place of the voxel that they come with. Of the same voxel critical edges
// come before paired ones.
constexpr uint32_t kPairedRow = 8;
VOX_HOST_DEVICE uint64_t entry(const Work& work, uint32_t place, uint32_t within) {
  return uint64_t{static_cast<uint32_t>(work.keys[place]) ^ 0x80000000u} << 32 | place << 4 | within;
}
VOX_HOST_DEVICE uint32_t place_of(uint64_t entry) {
  return static_cast<uint32_t>(entry) >> 4;
}
VOX_HOST_DEVICE uint32_t key_of(uint64_t entry) {
  return static_cast<uint32_t>(entry >> 32);
}
VOX_HOST_DEVICE uint32_t edge_of(const TunnelCells& cells, uint64_t entry) {
  return cells.edge_at(place_of(entry), static_cast<int>(entry & 7));
}
VOX_HOST_DEVICE constexpr int first_axis(int normal) {
  return normal == 0 ? 1 : 0;
}
VOX_HOST_DEVICE constexpr int second_axis(int normal) {
  return normal == 2 ? 1 : 2;
}
VOX_HOST_DEVICE uint32_t square_code(uint32_t bit) {
  const int normal = TunnelCells::normal(bit);
  return static_cast<uint32_t>(normal << 2) | (bit & star::back(first_axis(normal)) ? 2u : 0u) |
         (bit & star::back(second_axis(normal)) ? 1u : 0u);
}
VOX_HOST_DEVICE uint32_t square_of(const TunnelCells& cells, uint64_t entry) {
  const int normal = static_cast<int>(entry >> 2 & 3);
  const uint32_t back =
      (entry & 2 ? cells.step(first_axis(normal)) : 0) + (entry & 1 ? cells.step(second_axis(normal)) : 0);
  return (place_of(entry) - back) * 3 + static_cast<uint32_t>(normal);
}

VOX_HOST_DEVICE uint32_t earlier_neighbours(const Work& work, uint32_t place) {
  const int32_t key = work.keys[place];
  const uint32_t first = place - work.cells.slice - work.cells.row - 1;
  uint32_t earlier = 0;
  for (uint32_t i = 0; i < 27; ++i) {
    const int32_t there = work.keys[first + i / 9 * work.cells.slice + i / 3 % 3 * work.cells.row + i % 3];
    if (i < neighbourhood::kMiddleBit ? there <= key : there < key) earlier |= 1u << i;
  }
  return earlier & neighbourhood::kCorners;
}

VOX_HOST_DEVICE uint32_t cube_or_outside(const Work& work, uint32_t place) {
  const bool cube =
      work.keys[place] != kBorderKey && work.keys[place + work.cells.slice + work.cells.row + 1] != kBorderKey;
  return cube ? place : 0;
}

// Takes what write_star finds.
template <class AddColumn>
struct StarOut {
  const Work& work;
  AddColumn& add_column;
  uint32_t place;
  VOX_HOST_DEVICE void link(uint32_t edge, uint32_t link) { work.links[edge] = link; }
  VOX_HOST_DEVICE void down(uint32_t) {}
  VOX_HOST_DEVICE void up(uint32_t cube, uint32_t next) { work.up[cube] = cube_or_outside(work, next); }
  VOX_HOST_DEVICE void critical_edge(uint32_t edge, int) { work.links[edge] = edge; }
  VOX_HOST_DEVICE void critical_square(uint32_t, uint32_t bit) { add_column(entry(work, place, square_code(bit))); }
};

// Of a place; calls add_column(entry). Before: all links are kNothing, and all ways up are 0.
template <class AddColumn>
VOX_HOST_DEVICE void take_star_apart(const Work& work, AddColumn&& add_column, uint32_t place) {
  if (work.keys[place] != kBorderKey)
    write_star(StarOut<AddColumn>{work, add_column, place}, work.cells, place, earlier_neighbours(work, place));
}

struct Lead {
  uint32_t edge;  // or kNothing
  bool settled;
};
VOX_HOST_DEVICE Lead lead_of(const Work& work, uint32_t edge, int most_hops) {
  for (int i = 0; i < most_hops; ++i) {
    const uint32_t link = loaded(work.links + edge);
    if (link == links::kNothing) return {link, true};
    if (link == edge || is_branching(link)) return {edge, true};
    if (links::is_paired(link)) return {edge, false};
    edge = link;
  }
  return {edge, false};
}

// What edges stand for, as far as is known; equal ones cancel.
struct Sum {
  int count = 0;
  bool settled = true;
  uint32_t edge[4] = {links::kNothing, links::kNothing, links::kNothing, links::kNothing};
};
template <int N>
VOX_HOST_DEVICE Sum sum_of(const Work& work, const uint32_t (&edges)[N], int most_hops) {
  Lead leads[N];
  for (int i = 0; i < N; ++i) leads[i] = lead_of(work, edges[i], most_hops);
  for (int i = 0; i < N; ++i)
    for (int j = 0; j < i; ++j)
      if (leads[i].edge == leads[j].edge) leads[i].edge = leads[j].edge = links::kNothing;
  Sum sum;
  for (int i = 0; i < N; ++i) {
    if (leads[i].edge == links::kNothing) continue;
    sum.settled = sum.settled && leads[i].settled;
    sum.edge[sum.count++] = leads[i].edge;
  }
  return sum;
}

// One look at an edge that is paired or linked. Returns whether it knows what it stands for, or whom to ask.
VOX_HOST_DEVICE bool settle(const Work& work, uint32_t edge, int most_hops) {
  const uint32_t link = loaded(work.links + edge);
  if (link == links::kNothing || link == edge || is_branching(link)) return true;
  if (!links::is_paired(link)) {
    work.links[edge] = lead_of(work, link, most_hops).edge;
    return true;
  }
  const Sum sum = sum_of(work, work.cells.others_of(edge, link).edge, most_hops);
  if (sum.count > 1 && !sum.settled) return false;
  work.links[edge] = sum.count < 2 ? sum.edge[0] : link - links::kPaired + kBranching;
  return true;
}
// After enough looks: an edge that waits for others becomes a row of its own, which is right if not the shortest.
VOX_HOST_DEVICE void give_up_waiting(const Work& work, uint32_t edge) {
  const uint32_t link = work.links[edge];
  if (links::is_paired(link)) work.links[edge] = link - links::kPaired + kBranching;
}

// Whether an edge that nobody waits for is a row, and its entry: it comes with the last of its voxels.
VOX_HOST_DEVICE bool is_row(uint32_t edge, uint32_t link) {
  return link == edge || is_branching(link);
}
VOX_HOST_DEVICE uint64_t row_of(const Work& work, uint32_t edge) {
  const int axis = static_cast<int>(edge % 3);
  const uint32_t low = edge / 3, high = low + work.cells.step(axis);
  const bool from_high = work.keys[low] <= work.keys[high];
  const uint32_t direction = static_cast<uint32_t>(from_high ? axis : star::opposite(axis));
  return entry(work, from_high ? high : low, (work.links[edge] == edge ? 0 : kPairedRow) | direction);
}

// What a paired row stands for.
VOX_HOST_DEVICE void write_rest(const Work& work, uint64_t row, uint32_t* rest) {
  Sum sum;
  const uint32_t edge = edge_of(work.cells, row);
  if (row & kPairedRow)
    sum = sum_of(work, work.cells.others_of(edge, work.links[edge] - kBranching + links::kPaired).edge, INT32_MAX);
  for (int i = 0; i < 3; ++i) rest[i] = sum.edge[i];
}
VOX_HOST_DEVICE void write_column(const Work& work, uint64_t column, uint32_t* edges, uint32_t* cubes) {
  const uint32_t square = square_of(work.cells, column);
  const Sum sum = sum_of(work, work.cells.edges_of(square).edge, INT32_MAX);
  for (int i = 0; i < 4; ++i) edges[i] = sum.edge[i];
  const TwoCubes beside = work.cells.cubes_beside(square);
  for (int i = 0; i < 2; ++i) cubes[i] = work.up[cube_or_outside(work, beside.cube[i])];
}

// Edges by the numbers of their rows, which stand in their links once nobody follows those any more.
VOX_HOST_DEVICE void number_row(const Work& work, uint64_t row, uint32_t number) {
  work.links[edge_of(work.cells, row)] = number;
}
VOX_HOST_DEVICE void put_number(const Work& work, uint32_t* edge) {
  if (*edge != links::kNothing) *edge = work.links[*edge];
}

}  // namespace vox::tunnels
