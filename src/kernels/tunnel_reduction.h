// Pairs the squares that end tunnels with the edges that begin them, given how the other edges and squares of each
// voxel cancel (kernels/star_gradient.h). As kernels/reduction.h, with rows of three kinds: an edge that is paired with
// a square stands for the square's other edges, and what those stand for is found when somebody asks.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "kernels/row_heap.h"
#include "kernels/tunnel_cells.h"

namespace vox {

class TunnelReduction {
 public:
  // keys: of each place, with a border that comes last; links: of each edge, see kernels/tunnel_cells.h, with nothing
  // for an edge that is no row; late: of each edge, or of none, whether it comes after the others of its last voxel
  // although it is critical. Keys must outlive this.
  TunnelReduction(const TunnelCells& cells, std::span<const int32_t> keys, std::vector<uint32_t> links,
                  std::vector<bool> late = {});

  // The edge that begins the tunnel. Squares must come in order, without those that begin a cavity.
  uint32_t reduce(uint32_t square);

  uint32_t last_voxel(uint32_t edge) const;  // of its two, the place

 private:
  // In order of the last voxel, of edges that share it the critical ones first.
  struct Row {
    uint64_t voxel;
    uint32_t edge;  // with a bit for those that are paired
    auto operator<=>(const Row&) const = default;
  };

  uint32_t resolve(uint32_t edge);
  void settle(uint32_t edge);
  template <size_t N>
  RowSum sum_of(const uint32_t (&edges)[N]);
  Row row_of(uint32_t edge) const;
  uint32_t reduce_heap();
  void claim(uint32_t pivot);
  uint32_t pop_pivot();
  uint32_t stored(std::span<const uint32_t> edges);

  const TunnelCells cells_;
  const std::span<const int32_t> keys_;
  std::vector<uint32_t> links_;
  const std::vector<bool> late_;
  std::vector<uint32_t> waiting_;  // edges that settle after those which they lead to
  RowHeap<Row> heap_;
  std::vector<uint32_t> entries_;  // columns, each ended by kNothing
};

}  // namespace vox
