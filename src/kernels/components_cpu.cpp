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

// Builds runs and sets. find_runs(row, add) adds the runs of a row; connects says whether two runs that touch belong
// together, which for a mask folds away.
template <class FindRuns, class Connects>
class Scan {
 public:
  Scan(const Extent3& extent, Connectivity connectivity, FindRuns find_runs, Connects connects)
      : extent_(extent), neighbours_(neighbour_rows(connectivity)), find_runs_(find_runs), connects_(connects) {}

  RunComponents run() {
    VOX_ASSERT(extent_.x < (int64_t{1} << 31));
    found_.rows.reserve(static_cast<size_t>(extent_.z * extent_.y + 1));
    found_.rows.push_back(0);
    for (int64_t z = 0; z < extent_.z; ++z) {
      for (int64_t y = 0; y < extent_.y; ++y) {
        find_runs_(z * extent_.y + y, [&](int64_t begin, int64_t end) {
          add_run(static_cast<int32_t>(begin), static_cast<int32_t>(end));
        });
        found_.rows.push_back(static_cast<int64_t>(found_.runs.size()));
        for (const NeighbourRow& side : neighbours_) join(z, y, side);
      }
    }
    number();
    return std::move(found_);
  }

 private:
  void add_run(int32_t begin, int32_t end) {
    VOX_CHECK(sets_.size() < 0xffffffff, "a volume with more than 2^32 runs of voxels cannot be labelled");
    found_.runs.push_back({begin, end, sets_.add()});
  }

  void join(int64_t z, int64_t y, const NeighbourRow& side) {
    if (z + side.dz < 0 || y + side.dy < 0 || y + side.dy >= extent_.y) return;
    const int64_t row = z * extent_.y + y, other = row + side.dz * extent_.y + side.dy;
    const auto begin_of = [&](int64_t of) { return found_.runs.data() + found_.rows[static_cast<size_t>(of)]; };
    const Run *a = begin_of(row), *a_end = begin_of(row + 1), *b = begin_of(other), *b_end = begin_of(other + 1);
    const auto try_join = [&](const Run& mine, const Run& theirs) {
      const bool touch = mine.begin < theirs.end + side.reach && theirs.begin < mine.end + side.reach;
      if (touch && connects_(row, mine, other, theirs)) sets_.unite(mine.component, theirs.component);
    };
    while (a != a_end && b != b_end) {
      try_join(*a, *b);
      if (a->end == b->end) {  // runs of labels may follow without a gap: each may touch the other's successor
        if (a + 1 != a_end) try_join(a[1], *b);
        if (b + 1 != b_end) try_join(*a, b[1]);
        ++a, ++b;
      } else if (a->end < b->end) {
        ++a;
      } else {
        ++b;
      }
    }
  }

  // Roots are the first runs of their sets, so counting them in order numbers components by their first voxels.
  void number() {
    std::vector<uint32_t> numbers(found_.runs.size());
    uint32_t next = 0;
    for (size_t i = 0; i < found_.runs.size(); ++i) {
      const uint32_t root = sets_.find(static_cast<uint32_t>(i));
      numbers[i] = root == i ? next++ : numbers[root];
      found_.runs[i].component = numbers[i];
    }
    found_.count = next;
  }

  Extent3 extent_;
  std::vector<NeighbourRow> neighbours_;
  FindRuns find_runs_;
  Connects connects_;
  RunComponents found_;
  UnionFind sets_;
};

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
  const auto find_runs = [&](int64_t row, auto&& add) {
    const T* in = values + row * extent.x;
    for (int64_t begin = 0; begin < extent.x;) {
      int64_t end = begin + 1;
      while (end < extent.x && in[end] == in[begin]) ++end;
      if (in[begin] != 0) add(begin, end);
      begin = end;
    }
  };
  const auto connects = [&](int64_t row_a, const Run& a, int64_t row_b, const Run& b) {
    return values[row_a * extent.x + a.begin] == values[row_b * extent.x + b.begin];
  };
  const RunComponents found = Scan(extent, connectivity, find_runs, connects).run();
  write_labels(labels, found, extent);
  return found.count;
}

}  // namespace

RunComponents run_components(const uint8_t* mask, const Extent3& extent, Connectivity connectivity, Part part) {
  std::vector<uint64_t> words(static_cast<size_t>(words_for(extent.x)));
  const uint64_t flip = part == Part::kForeground ? 0 : ~uint64_t{0};
  const auto find_runs = [&](int64_t row, auto&& add) {
    pack_row(words.data(), mask + row * extent.x, extent.x);
    for_each_run(words.data(), extent.x, flip, add);
  };
  const auto connects = [](int64_t, const Run&, int64_t, const Run&) { return true; };
  return Scan(extent, connectivity, find_runs, connects).run();
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
