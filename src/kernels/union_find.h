// Disjoint sets by parents: a root is its own parent and, of sets made by unite, the smallest number.
#pragma once

#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace vox {

class UnionFind {
 public:
  explicit UnionFind(int64_t count = 0) : parent_(static_cast<size_t>(count)) {
    std::iota(parent_.begin(), parent_.end(), 0u);
  }
  explicit UnionFind(std::vector<uint32_t> parents) : parent_(std::move(parents)) {}  // must end at roots
  int64_t size() const { return static_cast<int64_t>(parent_.size()); }
  uint32_t add() {
    parent_.push_back(static_cast<uint32_t>(parent_.size()));
    return parent_.back();
  }
  uint32_t find(uint32_t node) {
    while (parent_[node] != node) {
      parent_[node] = parent_[parent_[node]];  // halves the path
      node = parent_[node];
    }
    return node;
  }
  // Returns the root of both where they were apart.
  uint32_t unite(uint32_t a, uint32_t b) {
    if (parent_[a] == parent_[b]) return parent_[a];  // most often, once sets have grown
    a = find(a);
    b = find(b);
    if (a > b) std::swap(a, b);
    parent_[b] = a;
    return a;
  }

 private:
  std::vector<uint32_t> parent_;
};

}  // namespace vox
