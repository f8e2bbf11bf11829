// Two passes over runs of voxels along x (He, Chao, Suzuki 2008): runs of neighbouring rows that touch are united, then
// each run writes the number of its set. Runs are found 64 voxels at a time from bits, so that work follows the surface
// of the mask and not its volume.
#include <algorithm>

#include "base/error.h"
#include "kernels/bit_rows.h"
#include "kernels/components.h"
#include "kernels/union_find.h"

namespace vox {
namespace {

struct NeighbourRow {
  int dz, dy;
  int reach;  // along x: 1 where voxels one step aside touch too
};

std::vector<NeighbourRow> neighbour_rows(Connectivity connectivity) {  // those before the row
  switch (connectivity) {
    case Connectivity::kFaces:
      return {{0, -1, 0}, {-1, 0, 0}};
    case Connectivity::kEdges:
      return {{0, -1, 1}, {-1, 0, 1}, {-1, -1, 0}, {-1, 1, 0}};
    case Connectivity::kCorners:
      return {{0, -1, 1}, {-1, 0, 1}, {-1, -1, 1}, {-1, 1, 1}};
  }
  throw Error("internal error: unknown connectivity", Fault::kBug);
}

// Joins the sets of runs that touch. `connects` says whether two runs that touch belong together; for a mask it folds
// away.
template <class Connects>
class Joiner {
 public:
  Joiner(RunComponents& found, const Extent3& extent, Connectivity connectivity, Connects connects)
      : found_(found),
        extent_(extent),
        neighbours_(neighbour_rows(connectivity)),
        connects_(connects),
        sets_(static_cast<int64_t>(found.runs.size())) {}

  void run() {
    for (int64_t z = 0; z < extent_.z; ++z)
      for (int64_t y = 0; y < extent_.y; ++y)
        for (const NeighbourRow& side : neighbours_) join(z, y, side);
    number();
  }

 private:
  void join(int64_t z, int64_t y, const NeighbourRow& side) {
    if (z + side.dz < 0 || y + side.dy < 0 || y + side.dy >= extent_.y) return;
    const int64_t row = z * extent_.y + y, other = row + side.dz * extent_.y + side.dy;
    const Run* runs = found_.runs.data();
    const auto begin_of = [&](int64_t of) { return runs + found_.rows[static_cast<size_t>(of)]; };
    const Run *a = begin_of(row), *a_end = begin_of(row + 1), *b = begin_of(other), *b_end = begin_of(other + 1);
    const auto try_join = [&](const Run* mine, const Run* theirs) {
      const bool touch = mine->begin < theirs->end + side.reach && theirs->begin < mine->end + side.reach;
      if (touch && connects_(row, *mine, other, *theirs))
        sets_.unite(static_cast<uint32_t>(mine - runs), static_cast<uint32_t>(theirs - runs));
    };
    while (a != a_end && b != b_end) {
      try_join(a, b);
      const bool a_first = a->end <= b->end, b_first = b->end <= a->end;
      if constexpr (Connects::kRunsMayAdjoin) {  // then each may touch the other's successor
        if (a_first && b_first && a + 1 != a_end) try_join(a + 1, b);
        if (a_first && b_first && b + 1 != b_end) try_join(a, b + 1);
      }
      a += a_first;
      b += b_first;
    }
  }

  // Roots are the first runs of their sets, so counting them in order numbers components by their first voxels.
  void number() {
    uint32_t next = 0;
    for (size_t i = 0; i < found_.runs.size(); ++i) {
      const uint32_t root = sets_.find(static_cast<uint32_t>(i));
      found_.runs[i].component = root == i ? next++ : found_.runs[root].component;
    }
    found_.count = next;
  }

  RunComponents& found_;
  const Extent3 extent_;
  const std::vector<NeighbourRow> neighbours_;
  const Connects connects_;
  UnionFind sets_;
};

void require_numbers(size_t runs) {
  VOX_CHECK(runs < 0xffffffff, "a volume with more than 2^32 runs of voxels cannot be labelled");
}

struct AnyRuns {
  static constexpr bool kRunsMayAdjoin = false;
  bool operator()(int64_t, const Run&, int64_t, const Run&) const { return true; }
};

template <class T>
struct RunsOfOneValue {
  static constexpr bool kRunsMayAdjoin = true;
  const T* values;
  int64_t width;
  bool operator()(int64_t row_a, const Run& a, int64_t row_b, const Run& b) const {
    return values[row_a * width + a.begin] == values[row_b * width + b.begin];
  }
};

// Where runs begin and where they end, a bit each, of 64 voxels and the one before them.
struct Borders {
  uint64_t begins, ends;
};
Borders borders_of(uint64_t bits, uint64_t carry) {
  const uint64_t before = bits << 1 | carry;
  return {bits & ~before, ~bits & before};
}

// Beginnings and ends are listed apart: two loops over set bits that do not wait for one another.
void find_runs(RunComponents& found, const std::vector<uint64_t>& words, const Extent3& extent) {
  const int64_t per_row = words_for(extent.x), rows = extent.z * extent.y;
  size_t count = 0;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < per_row; ++i) {
      const uint64_t* word = words.data() + row * per_row + i;
      count += static_cast<size_t>(std::popcount(borders_of(*word, i == 0 ? 0 : word[-1] >> 63).begins));
    }
    found.rows[static_cast<size_t>(row + 1)] = static_cast<int64_t>(count);
  }
  require_numbers(count);
  found.runs.resize(count);
  Run *begin = found.runs.data(), *end = begin;
  for (int64_t row = 0; row < rows; ++row) {
    uint64_t carry = 0;
    for (int64_t i = 0; i < per_row; ++i) {
      const uint64_t word = words[static_cast<size_t>(row * per_row + i)];
      auto [begins, ends] = borders_of(word, carry);
      for (; begins != 0; begins &= begins - 1)
        (begin++)->begin = static_cast<int32_t>(i * 64 + std::countr_zero(begins));
      for (; ends != 0; ends &= ends - 1) (end++)->end = static_cast<int32_t>(i * 64 + std::countr_zero(ends));
      carry = word >> 63;
    }
    if (end != begin) (end++)->end = static_cast<int32_t>(extent.x);  // a run up to the row's last word's last bit
  }
}

std::vector<uint64_t> pack_part(const uint8_t* mask, const Extent3& extent, Part part) {
  const int64_t per_row = words_for(extent.x);
  std::vector<uint64_t> words(static_cast<size_t>(per_row * extent.z * extent.y));
  const uint64_t in_last = extent.x % 64 == 0 ? ~uint64_t{0} : (uint64_t{1} << (extent.x % 64)) - 1;
  for (int64_t row = 0; row < extent.z * extent.y; ++row) {
    uint64_t* out = words.data() + row * per_row;
    pack_row(out, mask + row * extent.x, extent.x);
    if (part == Part::kForeground) continue;
    for (int64_t i = 0; i < per_row; ++i) out[i] = ~out[i] & (i + 1 == per_row ? in_last : ~uint64_t{0});
  }
  return words;
}

void write_labels(uint32_t* labels, const RunComponents& found, const Extent3& extent) {
  for (int64_t row = 0; row < extent.z * extent.y; ++row) {
    uint32_t* out = labels + row * extent.x;
    int64_t x = 0;
    for (int64_t i = found.rows[static_cast<size_t>(row)]; i < found.rows[static_cast<size_t>(row + 1)]; ++i) {
      const Run& run = found.runs[static_cast<size_t>(i)];
      std::fill(out + x, out + run.begin, 0u);
      std::fill(out + run.begin, out + run.end, run.component + 1);
      x = run.end;
    }
    std::fill(out + x, out + extent.x, 0u);
  }
}

template <class T>
int64_t label_components(uint32_t* labels, const T* values, const Extent3& extent, Connectivity connectivity) {
  VOX_ASSERT(extent.x < (int64_t{1} << 31));
  RunComponents found;
  found.rows.push_back(0);
  for (int64_t row = 0; row < extent.z * extent.y; ++row) {
    const T* in = values + row * extent.x;
    for (int64_t begin = 0; begin < extent.x;) {
      int64_t end = begin + 1;
      while (end < extent.x && in[end] == in[begin]) ++end;
      if (in[begin] != 0) found.runs.push_back({static_cast<int32_t>(begin), static_cast<int32_t>(end), 0});
      begin = end;
    }
    require_numbers(found.runs.size());
    found.rows.push_back(static_cast<int64_t>(found.runs.size()));
  }
  Joiner(found, extent, connectivity, RunsOfOneValue<T>{values, extent.x}).run();
  write_labels(labels, found, extent);
  return found.count;
}

}  // namespace

RunComponents run_components(const uint8_t* mask, const Extent3& extent, Connectivity connectivity, Part part) {
  VOX_ASSERT(extent.x < (int64_t{1} << 31));
  RunComponents found;
  found.rows.assign(static_cast<size_t>(extent.z * extent.y + 1), 0);
  if (extent.voxels() == 0) return found;
  find_runs(found, pack_part(mask, extent, part), extent);
  Joiner(found, extent, connectivity, AnyRuns{}).run();
  return found;
}

int64_t components_cpu(uint32_t* labels, const uint8_t* mask, const Extent3& extent, Connectivity connectivity) {
  const RunComponents found = run_components(mask, extent, connectivity);
  write_labels(labels, found, extent);
  return found.count;
}

int64_t label_components_cpu(uint32_t* labels, const uint8_t* values, const Extent3& extent,
                             Connectivity connectivity) {
  return label_components(labels, values, extent, connectivity);
}
int64_t label_components_cpu(uint32_t* labels, const uint16_t* values, const Extent3& extent,
                             Connectivity connectivity) {
  return label_components(labels, values, extent, connectivity);
}
int64_t label_components_cpu(uint32_t* labels, const uint32_t* values, const Extent3& extent,
                             Connectivity connectivity) {
  return label_components(labels, values, extent, connectivity);
}

}  // namespace vox
