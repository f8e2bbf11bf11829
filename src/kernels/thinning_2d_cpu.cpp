// Two sub-iterations in turn until neither takes anything away; each looks at the slice as the one before left it.
// Pixels whose four face neighbours are all set never go, so work follows the border; rows around which nothing has
// changed since their last turn are left out.
#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "kernels/padded_bits.h"
#include "kernels/pieces.h"
#include "kernels/thinning.h"

namespace vox {
namespace {

constexpr uint8_t kFirst = 1, kSecond = 2, kEither = 3;  // in which sub-iteration a pixel goes

// Eight neighbours as bits, clockwise from the one above to the left.
uint8_t zhang_suen(uint32_t neighbours) {
  const auto at = [&](int i) { return (neighbours >> (i % 8) & 1) != 0; };
  int begins = 0;
  for (int i = 0; i < 8; ++i) begins += !at(i) && at(i + 1);
  const int count = std::popcount(neighbours);
  if (begins != 1 || count < 2 || count > 6) return 0;
  const bool above = at(1), right = at(3), below = at(5), left = at(7);
  const bool first = !(above && right && below) && !(right && below && left);
  const bool second = !(above && right && left) && !(above && below && left);
  return static_cast<uint8_t>((first ? kFirst : 0) | (second ? kSecond : 0));
}

// Where scikit-image decides otherwise than the paper: ends of lines are kept from one side, and corners of steps are
// taken away, so that lines end up one pixel wide.
struct Exception {
  uint8_t neighbours, when;
};
constexpr Exception kExceptions[] = {{3, kFirst},   {6, kFirst},    {12, kFirst},   {14, kFirst},   {131, kFirst},
                                     {11, kFirst},  {134, kFirst},  {161, kFirst},  {194, kFirst},  {198, kFirst},
                                     {24, kSecond}, {56, kSecond},  {96, kSecond},  {192, kSecond}, {224, kSecond},
                                     {26, kSecond}, {104, kSecond}, {108, kSecond}, {176, kSecond}, {10, kEither},
                                     {40, kEither}, {130, kEither}, {160, kEither}, {48, 0},        {129, 0}};

// By the 3x3 pixels row by row, the middle one included.
std::array<uint8_t, 512> make_table() {
  constexpr int kClockwise[8] = {0, 1, 2, 5, 8, 7, 6, 3};
  std::array<uint8_t, 256> rule;
  for (uint32_t i = 0; i < 256; ++i) rule[i] = zhang_suen(i);
  for (const Exception& exception : kExceptions) rule[exception.neighbours] = exception.when;
  std::array<uint8_t, 512> table{};
  for (uint32_t pixels = 0; pixels < 512; ++pixels) {
    uint32_t neighbours = 0;
    for (int i = 0; i < 8; ++i) neighbours |= (pixels >> kClockwise[i] & 1) << i;
    table[pixels] = rule[neighbours];
  }
  return table;
}

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
        if (has_work(y, turn) && search(y, turn % 2 == 1 ? kFirst : kSecond)) rows.push_back(y);
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
    static const std::array<uint8_t, 512> table = make_table();
    const uint64_t *above = bits_.row(0, y - 1), *here = bits_.row(0, y), *below = bits_.row(0, y + 1);
    uint64_t any = 0;
    for (int64_t i = 0; i < bits_.words(); ++i) {
      uint64_t border = here[i] & ~(above[i] & below[i] & bits_before(here + i) & bits_after(here + i)), found = 0;
      for (; border != 0; border &= border - 1) {
        const int64_t bit = std::countr_zero(border), x = i * 64 + bit;
        const uint32_t pixels = three_bits(above, x) | three_bits(here, x) << 3 | three_bits(below, x) << 6;
        found |= uint64_t{(table[pixels] & when) != 0} << bit;
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
