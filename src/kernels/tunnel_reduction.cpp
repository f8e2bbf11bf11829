#include "kernels/tunnel_reduction.h"

#include <utility>

#include "base/error.h"

namespace vox {
namespace {

constexpr uint32_t kPairedRow = uint32_t{1} << 31;
constexpr size_t kMostEntries = size_t{1} << 30;

}  // namespace

TunnelReduction::TunnelReduction(const TunnelCells& cells, std::span<const int32_t> keys, std::vector<uint32_t> links,
                                 std::vector<bool> late)
    : cells_(cells), keys_(keys), links_(std::move(links)), late_(std::move(late)) {
  VOX_ASSERT(links_.size() <= links::kPaired);
}

uint32_t TunnelReduction::last_voxel(uint32_t edge) const {
  const uint32_t low = edge / 3, high = low + cells_.step(static_cast<int>(edge % 3));
  return keys_[low] > keys_[high] ? low : high;  // of equal keys the place decides
}

TunnelReduction::Row TunnelReduction::row_of(uint32_t edge) const {
  const bool critical =
      (links_[edge] == edge || links_[edge] >= links::kPivotColumn) && (late_.empty() || !late_[edge]);
  const uint32_t voxel = last_voxel(edge);
  const uint64_t key = static_cast<uint32_t>(keys_[voxel]) ^ 0x80000000u;
  return {key << 32 | voxel, critical ? edge : edge | kPairedRow};
}

uint32_t TunnelReduction::reduce(uint32_t square) {
  const RowSum sum = sum_of(cells_.edges_of(square).edge);
  if (sum.count == 0) return links::kNothing;
  if (sum.count <= 2) {  // often: no heap is needed
    const bool swap = sum.count == 2 && row_of(sum.row[0]) < row_of(sum.row[1]);
    const uint32_t pivot = sum.row[swap ? 1 : 0], rest = sum.count == 1 ? links::kNothing : sum.row[swap ? 0 : 1];
    if (links_[pivot] == pivot) {
      links_[pivot] = rest;
      return pivot;
    }
  }
  heap_.clear();
  for (int i = 0; i < sum.count; ++i) heap_.push(row_of(sum.row[i]));
  return reduce_heap();
}

// What the edge stands for: nothing, itself, or an edge that a stored column replaces.
uint32_t TunnelReduction::resolve(uint32_t edge) {
  if (links::is_paired(links_[edge])) settle(edge);
  uint32_t next = links_[edge];
  if (next >= links::kColumn || next == edge) return next == links::kNothing ? links::kNothing : edge;
  for (;;) {
    const uint32_t after = links_[next];
    if (after == links::kNothing) return links_[edge] = links::kNothing;
    if (after >= links::kColumn || after == next) return next;
    links_[edge] = after;  // halves the path
    edge = next;
    next = after;
  }
}

void TunnelReduction::settle(uint32_t edge) {
  waiting_.assign(1, edge);
  while (!waiting_.empty()) {
    const uint32_t at = waiting_.back(), link = links_[at];
    if (!links::is_paired(link)) {  // another way led to it
      waiting_.pop_back();
      continue;
    }
    const ThreeEdges others = cells_.others_of(at, link);
    const size_t before = waiting_.size();
    for (const uint32_t other : others.edge)
      if (links::is_paired(links_[other])) waiting_.push_back(other);
    if (waiting_.size() > before) continue;
    waiting_.pop_back();
    const RowSum sum = sum_of(others.edge);
    links_[at] = sum.count == 0   ? links::kNothing
                 : sum.count == 1 ? sum.row[0]
                                  : links::kColumn + stored({sum.row, static_cast<size_t>(sum.count)});
  }
}

// What the edges stand for; equal ones cancel.
template <size_t N>
RowSum TunnelReduction::sum_of(const uint32_t (&edges)[N]) {
  RowSum sum;
  for (const uint32_t edge : edges) {
    const uint32_t row = resolve(edge);
    if (row != links::kNothing) sum.add(row);
  }
  return sum;
}

uint32_t TunnelReduction::reduce_heap() {
  for (;;) {
    const uint32_t pivot = pop_pivot();
    if (pivot == links::kNothing) return links::kNothing;
    if (links_[pivot] == pivot) {
      claim(pivot);
      return pivot;
    }
    for (size_t i = links_[pivot] & ~links::kPivotColumn; entries_[i] != links::kNothing; ++i) {
      const uint32_t edge = resolve(entries_[i]);
      if (edge != links::kNothing) heap_.push(row_of(edge));
    }
  }
}

uint32_t TunnelReduction::pop_pivot() {
  const std::optional<Row> row = heap_.pop_pivot();
  return row ? row->edge & ~kPairedRow : links::kNothing;
}

void TunnelReduction::claim(uint32_t pivot) {
  const uint32_t first = pop_pivot(), second = first == links::kNothing ? links::kNothing : pop_pivot();
  if (second == links::kNothing) {
    links_[pivot] = first;
    return;
  }
  const uint32_t both[2] = {first, second};
  links_[pivot] = links::kPivotColumn + stored(both);
  entries_.pop_back();
  for (uint32_t edge = pop_pivot(); edge != links::kNothing; edge = pop_pivot()) entries_.push_back(edge);
  entries_.push_back(links::kNothing);
}

uint32_t TunnelReduction::stored(std::span<const uint32_t> edges) {
  VOX_CHECK(entries_.size() < kMostEntries - 4, "the topology of this volume is too rich to be reduced in memory");
  const uint32_t begin = static_cast<uint32_t>(entries_.size());
  entries_.insert(entries_.end(), edges.begin(), edges.end());
  entries_.push_back(links::kNothing);
  return begin;
}

}  // namespace vox
