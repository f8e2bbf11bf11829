// Kruskal's spanning forest with a memory of what must stay apart: each cluster keeps a list of voxels of clusters that
// it may not join. Whether two clusters exclude each other is looked up in the shorter of their lists.
#include <algorithm>
#include <bit>

#include "base/error.h"
#include "kernels/radix_sort.h"
#include "kernels/union_find.h"
#include "kernels/watershed.h"

namespace vox {
namespace {

class Clusters {
 public:
  explicit Clusters(int64_t voxels) : sets_(voxels), list_of_(static_cast<size_t>(voxels)), lists_(1) {}

  uint32_t find(uint32_t voxel) { return sets_.find(voxel); }

  void join(uint32_t a, uint32_t b) {
    a = find(a);
    b = find(b);
    if (a == b || exclude(a, b)) return;
    const uint32_t kept = list_of_[a], other = list_of_[b];
    list_of_[sets_.unite(a, b)] = merged(kept, other);
  }

  void keep_apart(uint32_t a, uint32_t b) {
    a = find(a);
    b = find(b);
    if (a == b || exclude(a, b)) return;
    list(a).push_back(b);
    list(b).push_back(a);
  }

 private:
  std::vector<uint32_t>& list(uint32_t root) {
    if (list_of_[root] == 0) {
      list_of_[root] = static_cast<uint32_t>(lists_.size());
      lists_.emplace_back();
    }
    return lists_[list_of_[root]];
  }

  bool exclude(uint32_t a, uint32_t b) {
    if (lists_[list_of_[a]].size() > lists_[list_of_[b]].size()) std::swap(a, b);
    const std::vector<uint32_t>& shorter = lists_[list_of_[a]];
    return std::any_of(shorter.begin(), shorter.end(), [&](uint32_t voxel) { return find(voxel) == b; });
  }

  // List 0 is everybody's empty one.
  uint32_t merged(uint32_t longer, uint32_t shorter) {
    if (lists_[longer].size() < lists_[shorter].size()) std::swap(longer, shorter);
    if (shorter == 0) return longer;
    std::vector<uint32_t>& into = lists_[longer];
    for (const uint32_t voxel : lists_[shorter]) into.push_back(find(voxel));
    for (uint32_t& voxel : into) voxel = find(voxel);
    std::sort(into.begin(), into.end());
    into.erase(std::unique(into.begin(), into.end()), into.end());
    lists_[shorter] = {};
    return longer;
  }

  UnionFind sets_;
  std::vector<uint32_t> list_of_;  // of each root
  std::vector<std::vector<uint32_t>> lists_;
};

bool on_grid(const Extent3& at, const Extent3& stride) {
  return at.z % stride.z == 0 && at.y % stride.y == 0 && at.x % stride.x == 0;
}

int64_t steps_back(const Extent3& offset, const Extent3& extent) {
  return (offset.z * extent.y + offset.y) * extent.x + offset.x;
}

// Numbers that sort by falling strength; the lower half is the edge: offset * voxels + voxel.
void add_edges(std::vector<uint64_t>& sorted, const AffinityEdges& edges, size_t offset, const uint8_t* mask,
               const Extent3& extent) {
  const Extent3& step = edges.offsets[offset];
  const int64_t back = steps_back(step, extent), first = static_cast<int64_t>(offset) * extent.voxels();
  const bool attractive = static_cast<int64_t>(offset) < edges.attractive;
  const auto within = [](int64_t at, int64_t size) { return at >= 0 && at < size; };
  int64_t voxel = 0;
  for (int64_t z = 0; z < extent.z; ++z) {
    for (int64_t y = 0; y < extent.y; ++y) {
      const bool rows = within(z - step.z, extent.z) && within(y - step.y, extent.y);
      for (int64_t x = 0; x < extent.x; ++x, ++voxel) {
        if (!rows || !within(x - step.x, extent.x)) continue;
        if (mask && !(mask[voxel] && mask[voxel - back])) continue;
        if (!attractive && !on_grid({z, y, x}, edges.repulsive_stride)) continue;
        const float affinity = edges.values[first + voxel], strength = attractive ? affinity : 1 - affinity;
        if (!(strength > 0)) continue;  // says nothing; nor does NaN
        sorted.push_back(uint64_t{~std::bit_cast<uint32_t>(strength)} << 32 | static_cast<uint32_t>(first + voxel));
      }
    }
  }
}

int64_t number_clusters(uint32_t* labels, Clusters& clusters, const uint8_t* mask, int64_t voxels) {
  uint32_t count = 0;
  for (int64_t voxel = 0; voxel < voxels; ++voxel) {
    if (mask && !mask[voxel]) {
      labels[voxel] = 0;
      continue;
    }
    const uint32_t root = clusters.find(static_cast<uint32_t>(voxel));  // the first voxel of its cluster
    labels[voxel] = root == voxel ? ++count : labels[root];
  }
  return count;
}

}  // namespace

int64_t mutex_watershed_cpu(uint32_t* labels, const AffinityEdges& edges, const uint8_t* mask, const Extent3& extent) {
  const int64_t voxels = extent.voxels();
  VOX_ASSERT(voxels * static_cast<int64_t>(edges.offsets.size()) < int64_t{UINT32_MAX});
  std::vector<uint64_t> sorted;
  for (size_t offset = 0; offset < edges.offsets.size(); ++offset) add_edges(sorted, edges, offset, mask, extent);
  sort_by_upper_half(sorted);
  Clusters clusters(voxels);
  for (const uint64_t item : sorted) {
    const int64_t edge = static_cast<uint32_t>(item), offset = edge / voxels, voxel = edge % voxels;
    const auto here = static_cast<uint32_t>(voxel);
    const auto there = static_cast<uint32_t>(voxel - steps_back(edges.offsets[static_cast<size_t>(offset)], extent));
    offset < edges.attractive ? clusters.join(here, there) : clusters.keep_apart(here, there);
  }
  return number_clusters(labels, clusters, mask, voxels);
}

}  // namespace vox
