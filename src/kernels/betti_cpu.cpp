#include <bit>

#include "kernels/betti.h"
#include "kernels/bit_rows.h"

namespace vox {
namespace {

struct BitMask {
  int64_t words_per_row = 0;
  std::vector<uint64_t> words;  // a word more than needed: the row after the last is read where it does not count

  const uint64_t* row(int64_t index) const { return words.data() + index * words_per_row; }
};

BitMask pack(const uint8_t* mask, const Extent3& extent) {
  BitMask bits{words_for(extent.x), {}};
  bits.words.resize(static_cast<size_t>(bits.words_per_row * extent.z * extent.y));
  for (int64_t row = 0; row < extent.z * extent.y; ++row)
    pack_row(bits.words.data() + row * bits.words_per_row, mask + row * extent.x, extent.x);
  return bits;
}

// Bits set, and bits set with their right neighbour, where all of `rows` have them.
template <size_t Count>
std::array<int64_t, 2> count_common(const std::array<const uint64_t*, Count>& rows, int64_t words) {
  const auto common = [&](int64_t word) {
    uint64_t bits = ~uint64_t{0};
    for (const uint64_t* row : rows) bits &= row[word];
    return bits;
  };
  std::array<int64_t, 2> found{};
  uint64_t here = common(0);
  for (int64_t word = 0; word < words; ++word) {
    const uint64_t next = word + 1 < words ? common(word + 1) : 0;
    found[0] += std::popcount(here);
    found[1] += std::popcount(here & (here >> 1 | next << 63));
    here = next;
  }
  return found;
}

}  // namespace

CellCounts count_cells_cpu(const uint8_t* mask, const Extent3& extent) {
  CellCounts cells;
  if (extent.voxels() == 0) return cells;
  const BitMask bits = pack(mask, extent);
  const int64_t words = bits.words_per_row;
  for (int64_t z = 0; z < extent.z; ++z) {
    for (int64_t y = 0; y < extent.y; ++y) {
      const int64_t row = z * extent.y + y;
      const bool below = y + 1 < extent.y, behind = z + 1 < extent.z;
      const uint64_t* here = bits.row(row);
      const auto add = [](const std::array<int64_t, 2>& found, int64_t& points, int64_t& pairs) {
        points += found[0];
        pairs += found[1];
      };
      add(count_common<1>({here}, words), cells.vertices, cells.edges);
      if (below) add(count_common<2>({here, bits.row(row + 1)}, words), cells.edges, cells.squares);
      if (behind) add(count_common<2>({here, bits.row(row + extent.y)}, words), cells.edges, cells.squares);
      if (below && behind)
        add(count_common<4>({here, bits.row(row + 1), bits.row(row + extent.y), bits.row(row + extent.y + 1)}, words),
            cells.squares, cells.cubes);
    }
  }
  return cells;
}

std::vector<uint8_t> enclosed(const RunComponents& background, const Extent3& extent) {
  std::vector<uint8_t> inside(static_cast<size_t>(background.count), 1);
  for (int64_t row = 0; row < extent.z * extent.y; ++row) {
    const int64_t z = row / extent.y, y = row % extent.y;
    const bool edge = z == 0 || z + 1 == extent.z || y == 0 || y + 1 == extent.y;
    for (int64_t i = background.rows[static_cast<size_t>(row)]; i < background.rows[static_cast<size_t>(row + 1)];
         ++i) {
      const Run& run = background.runs[static_cast<size_t>(i)];
      if (edge || run.begin == 0 || run.end == extent.x) inside[run.component] = 0;
    }
  }
  return inside;
}

std::array<int64_t, 3> betti_numbers_cpu(const uint8_t* mask, const Extent3& extent) {
  const int64_t components = run_components(mask, extent, Connectivity::kFaces).count;
  int64_t cavities = 0;
  for (const uint8_t inside : enclosed(run_components(mask, extent, Connectivity::kCorners, Part::kBackground), extent))
    cavities += inside;
  return {components, components + cavities - count_cells_cpu(mask, extent).euler(), cavities};
}

}  // namespace vox
