// Sorts numbers by their upper 32 bits, 11 bits at a time from the lowest; equal ones keep their order. Digits that are
// the same everywhere cost nothing.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace vox {

inline void sort_by_upper_half(std::vector<uint64_t>& items) {
  constexpr int kBits = 11, kPasses = 3;
  constexpr uint64_t kDigits = 1u << kBits;
  std::array<std::vector<size_t>, kPasses> counts;
  for (std::vector<size_t>& count : counts) count.assign(kDigits, 0);
  const auto digit = [](uint64_t item, int pass) { return item >> (32 + kBits * pass) & (kDigits - 1); };
  for (const uint64_t item : items)
    for (int pass = 0; pass < kPasses; ++pass) ++counts[static_cast<size_t>(pass)][digit(item, pass)];
  std::vector<uint64_t> sorted;
  for (int pass = 0; pass < kPasses; ++pass) {
    std::vector<size_t>& count = counts[static_cast<size_t>(pass)];
    if (items.empty() || count[digit(items.front(), pass)] == items.size()) continue;
    size_t next = 0;
    for (size_t& place : count) next += std::exchange(place, next);
    sorted.resize(items.size());
    for (const uint64_t item : items) sorted[count[digit(item, pass)]++] = item;
    items.swap(sorted);
  }
}

}  // namespace vox
