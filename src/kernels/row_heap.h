// The column of a boundary matrix over Z/2 while it is reduced: equal rows cancel.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace vox {

struct RowSum {  // of a square's four edges at most: often no heap is needed
  int count = 0;
  uint32_t row[4];

  void add(uint32_t other) {
    int same = 0;
    while (same < count && row[same] != other) ++same;
    if (same < count)
      row[same] = row[--count];
    else
      row[count++] = other;
  }
};

template <class Row>
class RowHeap {
 public:
  void clear() { rows_.clear(); }
  void push(const Row& row) {
    rows_.push_back(row);
    std::push_heap(rows_.begin(), rows_.end());
  }
  // The last row that occurs an odd number of times, taken out.
  std::optional<Row> pop_pivot() {
    while (!rows_.empty()) {
      const Row row = pop();
      if (rows_.empty() || rows_.front() != row) return row;
      pop();
    }
    return std::nullopt;
  }

 private:
  Row pop() {
    std::pop_heap(rows_.begin(), rows_.end());
    const Row row = rows_.back();
    rows_.pop_back();
    return row;
  }
  std::vector<Row> rows_;  // the last one first
};

}  // namespace vox
