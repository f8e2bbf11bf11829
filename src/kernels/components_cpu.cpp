// Two passes over runs of voxels along x (He, Chao, Suzuki 2008): runs of neighbouring rows that touch are united, then
// each run writes the number of its set. Of a mask, runs and where they touch are found 64 voxels at a time from bits,
// so that work follows the surface of the mask and not its volume.
#include <algorithm>

#include "base/error.h"
#include "kernels/components.h"
#include "kernels/padded_bits.h"
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

// Roots are the first runs of their sets, so counting them in order numbers components by their first voxels.
void number_components(RunComponents& found, UnionFind& sets) {
  uint32_t next = 0;
  for (size_t i = 0; i < found.runs.size(); ++i) {
    const uint32_t root = sets.find(static_cast<uint32_t>(i));
    found.runs[i].component = root == i ? next++ : found.runs[root].component;
  }
  found.count = next;
}

// Joins the runs of a label volume that touch and hold the same value; runs of different values may adjoin.
template <class T>
class LabelJoiner {
 public:
  LabelJoiner(RunComponents& found, const T* values, const Extent3& extent, Connectivity connectivity)
      : found_(found),
        values_(values),
        extent_(extent),
        neighbours_(neighbour_rows(connectivity)),
        sets_(static_cast<int64_t>(found.runs.size())) {}

  void run() {
    for (int64_t z = 0; z < extent_.z; ++z)
      for (int64_t y = 0; y < extent_.y; ++y)
        for (const NeighbourRow& side : neighbours_) join(z, y, side);
    number_components(found_, sets_);
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
      if (touch && values_[row * extent_.x + mine->begin] == values_[other * extent_.x + theirs->begin])
        sets_.unite(static_cast<uint32_t>(mine - runs), static_cast<uint32_t>(theirs - runs));
    };
    while (a != a_end && b != b_end) {
      try_join(a, b);
      const bool a_first = a->end <= b->end, b_first = b->end <= a->end;
      if (a_first && b_first && a + 1 != a_end) try_join(a + 1, b);
      if (a_first && b_first && b + 1 != b_end) try_join(a, b + 1);
      a += a_first;
      b += b_first;
    }
  }

  RunComponents& found_;
  const T* values_;
  const Extent3 extent_;
  const std::vector<NeighbourRow> neighbours_;
  UnionFind sets_;
};

void require_numbers(size_t runs) {
  VOX_CHECK(runs < 0xffffffff, "a volume with more than 2^32 runs of voxels cannot be labelled");
}

// Where runs begin and where they end, a bit each.
uint64_t begins_of(const uint64_t* word) {
  return *word & ~bits_before(word);
}
uint64_t ends_of(const uint64_t* word) {
  return ~*word & bits_before(word);
}

// Beginnings and ends are listed apart: two loops over set bits that do not wait for one another.
void find_runs(RunComponents& found, const PaddedBits& bits) {
  const Extent3& extent = bits.extent();
  size_t count = 0, row = 0;
  const auto for_each_row = [&](auto visit) {
    for (int64_t z = 0; z < extent.z; ++z)
      for (int64_t y = 0; y < extent.y; ++y) visit(bits.row(z, y));
  };
  for_each_row([&](const uint64_t* words) {
    for (int64_t i = 0; i < bits.words(); ++i) count += static_cast<size_t>(std::popcount(begins_of(words + i)));
    found.rows[++row] = static_cast<int64_t>(count);
  });
  require_numbers(count);
  found.runs.resize(count);
  Run *begin = found.runs.data(), *end = begin;
  for_each_row([&](const uint64_t* words) {
    for (int64_t i = 0; i < bits.words(); ++i) {
      for (uint64_t left = begins_of(words + i); left != 0; left &= left - 1)
        (begin++)->begin = static_cast<int32_t>(i * 64 + std::countr_zero(left));
      for (uint64_t left = ends_of(words + i); left != 0; left &= left - 1)
        (end++)->end = static_cast<int32_t>(i * 64 + std::countr_zero(left));
    }
    if (end != begin) (end++)->end = static_cast<int32_t>(extent.x);  // a run up to the row's last word's last bit
  });
}

// Joins the runs of a mask that touch, by the bits where they do. One bit of each touch is enough, and none where both
// runs touch a third one in between.
class MaskJoiner {
 public:
  MaskJoiner(RunComponents& found, const PaddedBits& bits, Connectivity connectivity)
      : found_(found), bits_(bits), connectivity_(connectivity), sets_(static_cast<int64_t>(found.runs.size())) {}

  void run() {
    number_runs();
    const int64_t stride = bits_.stride(), slice = bits_.slice();
    for (int64_t z = 0; z < bits_.extent().z; ++z) {
      for (int64_t y = 0; y < bits_.extent().y; ++y) {
        const uint64_t* row = bits_.row(z, y);
        for (const uint64_t* word = row; word < row + bits_.words(); ++word) {
          if (*word == 0) continue;
          const uint64_t *before = word - stride, *above = word - slice;
          join_beside(word, before);
          join_beside(word, above);
          if (connectivity_ == Connectivity::kFaces) continue;
          join_across(word, above - stride, before, above);
          join_across(word, above + stride, word + stride, above);
        }
      }
    }
    number_components(found_, sets_);
  }

 private:
  // For each word: how many runs begin before it.
  void number_runs() {
    before_.resize(static_cast<size_t>((bits_.extent().z + 2) * bits_.slice()));
    size_t row = 0;
    for (int64_t z = 0; z < bits_.extent().z; ++z) {
      for (int64_t y = 0; y < bits_.extent().y; ++y) {
        uint32_t count = static_cast<uint32_t>(found_.rows[row++]);
        const uint64_t* words = bits_.row(z, y);
        for (int64_t i = 0; i <= bits_.words(); ++i) {
          before_[static_cast<size_t>(words + i - bits_.data())] = count;
          count += static_cast<uint32_t>(std::popcount(begins_of(words + i)));
        }
      }
    }
  }
  uint32_t run_at(const uint64_t* word, int bit) const {  // bit: of the word, or one beside it
    word += bit < 0 ? -1 : bit > 63 ? 1 : 0;
    const uint64_t up_to = ~uint64_t{0} >> (63 - (bit & 63));
    const uint32_t begun = static_cast<uint32_t>(std::popcount(begins_of(word) & up_to));
    return before_[static_cast<size_t>(word - bits_.data())] + begun - 1;
  }
  void join(const uint64_t* word, const uint64_t* other, uint64_t touches, int step) {
    for (; touches != 0; touches &= touches - 1) {
      const int bit = std::countr_zero(touches);
      sets_.unite(run_at(word, bit), run_at(other, bit + step));
    }
  }

  // With a row that shares faces.
  void join_beside(const uint64_t* word, const uint64_t* other) {
    const uint64_t touches = *word & *other;
    join(word, other, touches & ~(touches << 1), 0);
    if (connectivity_ != Connectivity::kFaces) join_aside(word, other, 0, 0);
  }
  // With a row that shares edges; two rows lie between.
  void join_across(const uint64_t* word, const uint64_t* other, const uint64_t* between, const uint64_t* also) {
    const bool corners = connectivity_ == Connectivity::kCorners;
    const uint64_t third = *between | *also;
    const uint64_t third_before = corners ? bits_before(between) | bits_before(also) : 0;
    const uint64_t third_after = corners ? bits_after(between) | bits_after(also) : 0;
    const uint64_t touches = *word & *other & ~(third | third_before | third_after);
    join(word, other, touches & ~(touches << 1), 0);
    if (corners) join_aside(word, other, third | third_before, third | third_after);
  }
  // With the voxels one step aside, where those straight ahead do not join the runs.
  void join_aside(const uint64_t* word, const uint64_t* other, uint64_t not_before, uint64_t not_after) {
    const uint64_t alone = *word & ~*other;
    join(word, other, alone & bits_before(other) & ~bits_before(word) & ~not_before, -1);
    join(word, other, alone & bits_after(other) & ~bits_after(word) & ~not_after, 1);
  }

  RunComponents& found_;
  const PaddedBits& bits_;
  const Connectivity connectivity_;
  UnionFind sets_;
  std::vector<uint32_t> before_;
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
  LabelJoiner<T>(found, values, extent, connectivity).run();
  write_labels(labels, found, extent);
  return found.count;
}

}  // namespace

RunComponents run_components(const uint8_t* mask, const Extent3& extent, Connectivity connectivity, Part part) {
  VOX_ASSERT(extent.x < (int64_t{1} << 31));
  RunComponents found;
  found.rows.assign(static_cast<size_t>(extent.z * extent.y + 1), 0);
  if (extent.voxels() == 0) return found;
  PaddedBits bits(mask, extent);
  if (part == Part::kBackground) bits.complement();
  find_runs(found, bits);
  MaskJoiner(found, bits, connectivity).run();
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
