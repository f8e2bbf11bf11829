// As kernels/reduction.h, where rows have numbers in their order: a row stands for itself, for nothing, for another
// row, or for the rest of a column.
#include "kernels/tunnel_columns.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "kernels/row_heap.h"
#include "kernels/tunnel_steps.h"
#include "kernels/union_find.h"

namespace vox {
namespace {

class NumberedReduction {
 public:
  explicit NumberedReduction(const TunnelColumns& left) : left_(left), links_(left.rows.size()) {
    VOX_CHECK(links_.size() < links::kColumn / 2, "the topology of this volume is too rich to be reduced in memory");
    std::iota(links_.begin(), links_.end(), 0u);
    for (uint32_t row = 0; row < links_.size(); ++row)
      if (left.rows[row] & tunnels::kPairedRow) links_[row] = link_of_paired(row);
  }

  uint32_t reduce(size_t column) {
    const RowSum sum = sum_of(left_.edges.data() + 4 * column, 4);
    if (sum.count == 0) return links::kNothing;
    const uint32_t last = *std::max_element(sum.row, sum.row + sum.count);
    if (sum.count <= 2 && links_[last] == last) {
      links_[last] = sum.count == 1 ? links::kNothing : sum.row[0] ^ sum.row[1] ^ last;
      return last;
    }
    heap_.clear();
    for (int i = 0; i < sum.count; ++i) heap_.push(sum.row[i]);
    for (;;) {
      const uint32_t pivot = pop();
      if (pivot == links::kNothing) return pivot;
      if (links_[pivot] == pivot) {
        claim(pivot);
        return pivot;
      }
      push_rest(pivot);
    }
  }

 private:
  uint32_t link_of_paired(uint32_t row) {
    const RowSum sum = sum_of(left_.rest.data() + size_t{3} * row, 3);
    return sum.count == 0 ? links::kNothing : sum.count == 1 ? sum.row[0] : links::kColumn + row;
  }

  uint32_t resolve(uint32_t row) {
    uint32_t next = links_[row];
    if (next >= links::kColumn || next == row) return next == links::kNothing ? next : row;
    for (;;) {
      const uint32_t after = links_[next];
      if (after == links::kNothing) return links_[row] = after;
      if (after >= links::kColumn || after == next) return next;
      links_[row] = after;  // halves the path
      row = next;
      next = after;
    }
  }

  // What the rows stand for; equal ones cancel.
  RowSum sum_of(const uint32_t* rows, int count) {
    RowSum sum;
    for (int i = 0; i < count; ++i) {
      const uint32_t row = rows[i] == links::kNothing ? links::kNothing : resolve(rows[i]);
      if (row != links::kNothing) sum.add(row);
    }
    return sum;
  }

  void push(uint32_t row) {
    const uint32_t stands_for = resolve(row);
    if (stands_for != links::kNothing) heap_.push(stands_for);
  }
  void push_rest(uint32_t pivot) {
    if (links_[pivot] >= links::kPivotColumn) {
      for (size_t i = links_[pivot] - links::kPivotColumn; entries_[i] != links::kNothing; ++i) push(entries_[i]);
    } else {
      for (size_t i = size_t{3} * pivot; i < size_t{3} * pivot + 3; ++i)
        if (left_.rest[i] != links::kNothing) push(left_.rest[i]);
    }
  }
  uint32_t pop() { return heap_.pop_pivot().value_or(links::kNothing); }

  void claim(uint32_t pivot) {
    const uint32_t first = pop(), second = first == links::kNothing ? first : pop();
    if (second == links::kNothing) {
      links_[pivot] = first;
      return;
    }
    VOX_CHECK(entries_.size() < links::kColumn / 2 - 1,
              "the topology of this volume is too rich to be reduced in memory");
    links_[pivot] = links::kPivotColumn + static_cast<uint32_t>(entries_.size());
    entries_.push_back(first);
    for (uint32_t row = second; row != links::kNothing; row = pop()) entries_.push_back(row);
    entries_.push_back(links::kNothing);
  }

  const TunnelColumns& left_;
  std::vector<uint32_t> links_;    // kColumn: with its rest in left_
  std::vector<uint32_t> entries_;  // columns of pivots, each ended by kNothing
  RowHeap<uint32_t> heap_;
};

// From the last on, squares that join cubes, or a cube and the outside, begin a cavity.
std::vector<bool> columns_of_cavities(const TunnelColumns& left) {
  UnionFind joined(left.places);
  std::vector<bool> found(left.columns.size(), false);
  for (size_t i = left.columns.size(); i-- > 0;) {
    const uint32_t a = joined.find(left.cubes[2 * i]), b = joined.find(left.cubes[2 * i + 1]);
    if (a == b) continue;
    joined.unite(a, b);
    found[i] = true;
  }
  return found;
}

}  // namespace

std::vector<PlacePair> tunnel_pairs_of(const TunnelColumns& left) {
  const std::vector<bool> begins_cavity = columns_of_cavities(left);
  NumberedReduction reduction(left);
  std::vector<PlacePair> pairs;
  size_t same_death = 0;  // where those of the last voxel begin
  for (size_t i = 0; i < left.columns.size(); ++i) {
    if (begins_cavity[i]) continue;
    const uint32_t row = reduction.reduce(i);
    VOX_ASSERT(row != links::kNothing);
    const uint64_t birth = left.rows[row], death = left.columns[i];
    if (tunnels::key_of(birth) == tunnels::key_of(death)) continue;
    const PlacePair pair{tunnels::place_of(birth), tunnels::place_of(death)};
    if (pairs.empty() || pairs.back().death != pair.death) same_death = pairs.size();
    pairs.push_back(pair);
    for (size_t at = pairs.size() - 1; at > same_death && pairs[at].birth < pairs[at - 1].birth; --at)
      std::swap(pairs[at], pairs[at - 1]);
  }
  return pairs;
}

}  // namespace vox
