#include <algorithm>
#include <vector>

#include "base/error.h"
#include "kernels/betti.h"
#include "kernels/betti_matching_parts.h"
#include "kernels/components.h"
#include "kernels/union_find.h"

namespace vox {
namespace {

constexpr uint8_t kHasP = 1, kHasG = 2, kHasBoth = 3;

// Components of the union have the first numbers, then each background voxel is a set of its own.
struct Sets {
  std::vector<uint32_t> of_voxel;
  std::vector<uint8_t> holds;  // of a root: voxels of P, of G
  int64_t with_p = 0, with_g = 0;
};

Sets sets_of(const MaskPair& masks) {
  const int64_t voxels = masks.extent.voxels();
  Sets sets;
  sets.of_voxel.resize(static_cast<size_t>(voxels));
  const int64_t components = components_cpu(sets.of_voxel.data(), masks.either, masks.extent, Connectivity::kFaces);
  sets.holds.assign(static_cast<size_t>(components + voxels), 0);
  for (int64_t i = 0; i < voxels; ++i) {
    uint32_t& set = sets.of_voxel[static_cast<size_t>(i)];
    set = set == 0 ? static_cast<uint32_t>(components + i) : set - 1;
    sets.holds[set] |= static_cast<uint8_t>((masks.p[i] ? kHasP : 0) | (masks.g[i] ? kHasG : 0));
  }
  for (const uint8_t holds : sets.holds) {
    sets.with_p += (holds & kHasP) != 0;
    sets.with_g += (holds & kHasG) != 0;
  }
  return sets;
}

// For each component: its last voxel.
std::vector<int64_t> last_voxels(const RunComponents& found, const Extent3& extent) {
  std::vector<int64_t> last(static_cast<size_t>(found.count));
  for (int64_t row = 0; row < extent.z * extent.y; ++row)
    for (int64_t i = found.rows[static_cast<size_t>(row)]; i < found.rows[static_cast<size_t>(row + 1)]; ++i)
      last[found.runs[static_cast<size_t>(i)].component] = row * extent.x + found.runs[static_cast<size_t>(i)].end - 1;
  return last;
}

uint32_t component_at(const RunComponents& found, const Extent3& extent, int64_t voxel) {
  const int64_t row = voxel / extent.x, x = voxel % extent.x;
  const Run* begin = found.runs.data() + found.rows[static_cast<size_t>(row)];
  const Run* end = found.runs.data() + found.rows[static_cast<size_t>(row + 1)];
  const Run* after = std::upper_bound(begin, end, x, [](int64_t at, const Run& run) { return at < run.begin; });
  VOX_ASSERT(after != begin && x < after[-1].end);
  return after[-1].component;
}

}  // namespace

BettiMatches& BettiMatches::operator+=(const BettiMatches& other) {
  for (size_t k = 0; k < 3; ++k) {
    p[k] += other.p[k];
    g[k] += other.g[k];
    m[k] += other.m[k];
  }
  return *this;
}

// Edges of the background, in order, join sets; a pair of features ends where both sides hold both masks. (Counting
// the components that hold both would be wrong: one with P alone and one with G alone can join first.)
int64_t match_components(const MaskPair& masks) {
  Sets sets = sets_of(masks);
  UnionFind joined(static_cast<int64_t>(sets.holds.size()));
  const Extent3 extent = masks.extent;
  const int64_t steps[3] = {extent.y * extent.x, extent.x, 1};
  int64_t matches = 0;
  const auto join = [&](int64_t from, int64_t to) {
    const uint32_t a = joined.find(sets.of_voxel[static_cast<size_t>(from)]);
    const uint32_t b = joined.find(sets.of_voxel[static_cast<size_t>(to)]);
    if (a == b) return;
    const uint8_t shared = sets.holds[a] & sets.holds[b];
    matches += shared == kHasBoth;
    sets.with_p -= (shared & kHasP) != 0;
    sets.with_g -= (shared & kHasG) != 0;
    const uint8_t holds = sets.holds[a] | sets.holds[b];
    sets.holds[joined.unite(a, b)] = holds;
  };
  for (int64_t z = 0, i = 0; z < extent.z; ++z) {
    for (int64_t y = 0; y < extent.y; ++y) {
      if (sets.with_p <= 1 || sets.with_g <= 1) return matches;
      for (int64_t x = 0; x < extent.x; ++x, ++i) {
        if (z + 1 < extent.z) join(i, i + steps[0]);
        if (y + 1 < extent.y) join(i, i + steps[1]);
        if (x + 1 < extent.x) join(i, i + steps[2]);
      }
    }
  }
  return matches;
}

// A cavity of the union lies in one background component of each mask; of several in the same cavity of a mask, the one
// with the last voxel is that cavity.
int64_t match_cavities(const MaskPair& masks) {
  const auto background = [&](const uint8_t* mask) {
    return run_components(mask, masks.extent, Connectivity::kCorners, Part::kBackground);
  };
  const RunComponents of_either = background(masks.either), of_p = background(masks.p), of_g = background(masks.g);
  const std::vector<uint8_t> cavity = enclosed(of_either, masks.extent), cavity_p = enclosed(of_p, masks.extent),
                             cavity_g = enclosed(of_g, masks.extent);
  const std::vector<int64_t> last = last_voxels(of_either, masks.extent);
  std::vector<int64_t> last_in_p(cavity_p.size(), -1), last_in_g(cavity_g.size(), -1);
  for (size_t i = 0; i < cavity.size(); ++i) {
    if (!cavity[i]) continue;
    int64_t& in_p = last_in_p[component_at(of_p, masks.extent, last[i])];
    int64_t& in_g = last_in_g[component_at(of_g, masks.extent, last[i])];
    in_p = std::max(in_p, last[i]);
    in_g = std::max(in_g, last[i]);
  }
  int64_t matches = 0;
  for (size_t i = 0; i < cavity.size(); ++i) {
    if (!cavity[i]) continue;
    const uint32_t in_p = component_at(of_p, masks.extent, last[i]), in_g = component_at(of_g, masks.extent, last[i]);
    matches += cavity_p[in_p] && cavity_g[in_g] && last_in_p[in_p] == last[i] && last_in_g[in_g] == last[i];
  }
  return matches;
}

BettiMatches match_betti_cpu(const uint8_t* p, const uint8_t* g, const Extent3& extent) {
  BettiMatches found{betti_numbers_cpu(p, extent), betti_numbers_cpu(g, extent), {}};
  for (std::array<int64_t, 3>* of : {&found.p, &found.g}) (*of)[0] = std::max<int64_t>((*of)[0] - 1, 0);
  std::vector<uint8_t> masks(static_cast<size_t>(3 * extent.voxels()));
  uint8_t *own_p = masks.data(), *own_g = own_p + extent.voxels(), *either = own_g + extent.voxels();
  for (int64_t i = 0; i < extent.voxels(); ++i) {
    own_p[i] = p[i] != 0;
    own_g[i] = g[i] != 0;
    either[i] = own_p[i] | own_g[i];
  }
  const MaskPair pair{own_p, own_g, either, extent};
  const auto both_have = [&](size_t k) { return found.p[k] > 0 && found.g[k] > 0; };
  if (both_have(0)) found.m[0] = match_components(pair);
  if (both_have(1)) found.m[1] = match_tunnels(pair);
  if (both_have(2)) found.m[2] = match_cavities(pair);
  return found;
}

}  // namespace vox
