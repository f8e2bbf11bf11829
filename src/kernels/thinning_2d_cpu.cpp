// Two sub-iterations in turn until neither takes anything away; each looks at the slice as the one before left it.
// Pixels whose four face neighbours are all set never go, so work follows the border; rows around which nothing has
// changed since their last turn are left out.
#include <algorithm>
#include <bit>
#include <vector>

#include "kernels/padded_bits.h"
#include "kernels/pieces.h"
#include "kernels/thinning.h"
#include "kernels/thinning_2d_table.h"

namespace vox {
namespace {

constexpr thinning::Table kTable = thinning::make_table();

class SliceThinning {
 public:
  SliceThinning(const uint8_t* slice, int64_t height, int64_t width)
      : bits_(slice, {1, height, width}),
        gone_(static_cast<size_t>(height * bits_.words())),
        changed_(static_cast<size_t>(height + 2), 0) {}

  void run(uint8_t* out) {
    int turns_without_change = 0;
    for (int turn = 1; turns_without_change < 2; ++turn) {
      std::vector<int64_t> rows;
      for (int64_t y = 0; y < bits_.extent().y; ++y)
        if (has_work(y, turn) && search(y, turn % 2 == 1 ? thinning::kFirst : thinning::kSecond)) rows.push_back(y);
      for (const int64_t y : rows) take_away(y, turn);
      turns_without_change = rows.empty() ? turns_without_change + 1 : 0;
    }
    bits_.unpack(out);
  }

 private:
  // The row's last turn of this kind was two turns ago, and saw what earlier turns left.
  bool has_work(int64_t y, int turn) const {
    const int* around = changed_.data() + y;
    return std::max({around[0], around[1], around[2]}) >= turn - 2;
  }

  uint64_t* gone(int64_t y) { return gone_.data() + y * bits_.words(); }

  bool search(int64_t y, uint8_t when) {
    const uint64_t *above = bits_.row(0, y - 1), *here = bits_.row(0, y), *below = bits_.row(0, y + 1);
    uint64_t any = 0;
    for (int64_t i = 0; i < bits_.words(); ++i) {
      uint64_t border = here[i] & ~(above[i] & below[i] & bits_before(here + i) & bits_after(here + i)), found = 0;
      for (; border != 0; border &= border - 1) {
        const int64_t bit = std::countr_zero(border), x = i * 64 + bit;
        const uint32_t pixels = three_bits(above, x) | three_bits(here, x) << 3 | three_bits(below, x) << 6;
        found |= uint64_t{(kTable.when[pixels] & when) != 0} << bit;
      }
      gone(y)[i] = found;
      any |= found;
    }
    return any != 0;
  }

  void take_away(int64_t y, int turn) {
    uint64_t* row = bits_.row(0, y);
    for (int64_t i = 0; i < bits_.words(); ++i) row[i] &= ~gone(y)[i];
    changed_[static_cast<size_t>(y + 1)] = turn;
  }

  PaddedBits bits_;
  std::vector<uint64_t> gone_;  // pixels that this turn takes away
  std::vector<int> changed_;    // of row y - 1: the last turn that changed it
};

}  // namespace

void thin_2d_cpu(uint8_t* out, const uint8_t* mask, const Extent3& extent, ThreadPool* pool) {
  const int64_t slice = extent.y * extent.x;
  if (slice == 0) return;
  for_each_piece(pool, extent.z,
                 [&](int64_t z) { SliceThinning(mask + z * slice, extent.y, extent.x).run(out + z * slice); });
}

}  // namespace vox
