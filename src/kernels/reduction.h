// Reduces the columns of a boundary matrix over Z/2, one after the other: edges are rows, squares are columns.
//
// A column that is reduced has a last row, its pivot, and from then on the pivot stands for the rest of the column. The
// rest of nearly every square is no edge or one: the pivot then stands for nothing, or for that other edge, and such
// links are followed as in a union-find. Without them a loop would be pushed, square by square, through the volume.
//
// Complex: edges_of(square) -> four edges; key(edge) -> uint32_t, the order of rows (of equal keys the number decides).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/error.h"
#include "kernels/row_heap.h"

namespace vox {

template <class Complex>
class Reduction {
 public:
  static constexpr uint32_t kNothing = ~uint32_t{0};

  // rows[edge] is 0 for edges that are no rows.
  Reduction(const Complex& complex, const std::vector<uint8_t>& rows) : complex_(complex), link_(rows.size()) {
    VOX_ASSERT(rows.size() < kColumn);
    for (uint32_t edge = 0; edge < link_.size(); ++edge) link_[edge] = rows[edge] ? edge : kNothing;
  }

  // The pivot of the square's column; kNothing where it depends on those reduced before.
  uint32_t reduce(uint32_t square) {
    const RowSum rows = rows_of(square);
    if (rows.count == 0) return kNothing;
    if (rows.count <= 2) {  // nearly always: no heap is needed
      const bool swap = rows.count == 2 && sortable(rows.row[0]) < sortable(rows.row[1]);
      const uint32_t pivot = rows.row[swap ? 1 : 0], rest = rows.count == 1 ? kNothing : rows.row[swap ? 0 : 1];
      if (link_[pivot] < kColumn) {
        link_[pivot] = rest;
        return pivot;
      }
    }
    heap_.clear();
    for (int i = 0; i < rows.count; ++i) push_row(rows.row[i]);
    return reduce_heap();
  }

 private:
  static constexpr uint32_t kColumn = uint32_t{1} << 31;  // added to the place where the rest of a column begins

  // What the edge stands for: nothing, itself, or an edge that a stored column replaces.
  uint32_t resolve(uint32_t edge) {
    uint32_t next = link_[edge];
    if (next >= kColumn || next == edge) return next == kNothing ? kNothing : edge;
    for (;;) {
      const uint32_t after = link_[next];
      if (after == kNothing) return link_[edge] = kNothing;
      if (after >= kColumn || after == next) return next;
      link_[edge] = after;  // halves the path
      edge = next;
      next = after;
    }
  }

  // What the edges of the square stand for; equal ones cancel.
  RowSum rows_of(uint32_t square) {
    RowSum rows;
    for (const uint32_t edge : complex_.edges_of(square)) {
      const uint32_t row = resolve(edge);
      if (row != kNothing) rows.add(row);
    }
    return rows;
  }

  uint32_t reduce_heap() {
    for (;;) {
      const uint32_t pivot = pop_pivot();
      if (pivot == kNothing) return kNothing;
      if (link_[pivot] < kColumn) {
        claim(pivot);
        return pivot;
      }
      for (size_t i = link_[pivot] - kColumn; entries_[i] != kNothing; ++i) {
        const uint32_t row = resolve(entries_[i]);
        if (row != kNothing) push_row(row);
      }
    }
  }

  uint64_t sortable(uint32_t row) const { return uint64_t{complex_.key(row)} << 32 | row; }
  void push_row(uint32_t row) { heap_.push(sortable(row)); }
  uint32_t pop_pivot() {
    const std::optional<uint64_t> row = heap_.pop_pivot();
    return row ? static_cast<uint32_t>(*row) : kNothing;
  }

  void claim(uint32_t pivot) {
    const uint32_t first = pop_pivot(), second = first == kNothing ? kNothing : pop_pivot();
    if (second == kNothing) {
      link_[pivot] = first;
      return;
    }
    VOX_CHECK(entries_.size() < kColumn - 1, "the topology of this volume is too rich to be reduced in memory");
    link_[pivot] = kColumn + static_cast<uint32_t>(entries_.size());
    entries_.push_back(first);
    for (uint32_t row = second; row != kNothing; row = pop_pivot()) entries_.push_back(row);
    entries_.push_back(kNothing);
  }

  const Complex& complex_;
  std::vector<uint32_t> link_;
  RowHeap<uint64_t> heap_;         // key and edge
  std::vector<uint32_t> entries_;  // columns, each ended by kNothing
};

}  // namespace vox
