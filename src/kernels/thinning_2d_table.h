// Which pixels of a slice go in which sub-iteration (Zhang & Suen 1984), as scikit-image's skeletonize has it.
#pragma once

#include <bit>
#include <cstdint>

namespace vox::thinning {

constexpr uint8_t kFirst = 1, kSecond = 2, kEither = 3;  // in which sub-iteration a pixel goes

struct Table {
  uint8_t when[512];  // by the 3x3 pixels row by row, the middle one included
};

// Eight neighbours as bits, clockwise from the one above to the left.
constexpr uint8_t zhang_suen(uint32_t neighbours) {
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

constexpr Table make_table() {
  constexpr int kClockwise[8] = {0, 1, 2, 5, 8, 7, 6, 3};
  uint8_t rule[256] = {};
  for (uint32_t i = 0; i < 256; ++i) rule[i] = zhang_suen(i);
  for (const Exception& exception : kExceptions) rule[exception.neighbours] = exception.when;
  Table table{};
  for (uint32_t pixels = 0; pixels < 512; ++pixels) {
    uint32_t neighbours = 0;
    for (int i = 0; i < 8; ++i) neighbours |= (pixels >> kClockwise[i] & 1) << i;
    table.when[pixels] = rule[neighbours];
  }
  return table;
}

}  // namespace vox::thinning
