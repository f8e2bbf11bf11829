#include "metrics/contingency.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "base/error.h"

namespace vox {
namespace {

// splitmix64 (Steele, Lea, Flood 2014): neighbouring labels would otherwise share buckets.
struct MixedHash {
  size_t operator()(uint64_t key) const {
    key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9ull;
    key = (key ^ (key >> 27)) * 0x94d049bb133111ebull;
    return key ^ (key >> 31);
  }
};

double squares_less_singles(const std::map<uint32_t, int64_t>& sizes) {
  double sum = 0;
  for (const auto& [label, size] : sizes) sum += static_cast<double>(size) * static_cast<double>(size - 1);
  return sum;
}

}  // namespace

std::map<uint32_t, int64_t> Contingency::reference_sizes() const {
  std::map<uint32_t, int64_t> sizes;
  for (const ContingencyCell& cell : cells) sizes[cell.reference] += cell.voxels;
  return sizes;
}

std::map<uint32_t, int64_t> Contingency::prediction_sizes() const {
  std::map<uint32_t, int64_t> sizes;
  for (const ContingencyCell& cell : cells) sizes[cell.prediction] += cell.voxels;
  return sizes;
}

Contingency count_pairs(std::span<const uint32_t> reference, std::span<const uint32_t> prediction, Voxels which,
                        std::span<const uint8_t> left_out) {
  VOX_ASSERT(reference.size() == prediction.size() && (left_out.empty() || left_out.size() == reference.size()));
  std::unordered_map<uint64_t, int64_t, MixedHash> counts;
  uint64_t last = 0;
  int64_t run = 0;
  const auto flush = [&] {
    if (run > 0) counts[last] += run;
    run = 0;
  };
  for (size_t i = 0; i < reference.size(); ++i) {
    const uint64_t pair = uint64_t{reference[i]} << 32 | prediction[i];
    if ((pair == 0 && which == Voxels::kOfEither) || (!left_out.empty() && left_out[i] != 0)) continue;
    if (pair != last) flush();
    last = pair;
    ++run;
  }
  flush();
  Contingency pairs;
  for (const auto& [pair, voxels] : counts) {
    pairs.cells.push_back({static_cast<uint32_t>(pair >> 32), static_cast<uint32_t>(pair), voxels});
    pairs.voxels += voxels;
  }
  std::sort(pairs.cells.begin(), pairs.cells.end(), [](const ContingencyCell& a, const ContingencyCell& b) {
    return std::pair(a.reference, a.prediction) < std::pair(b.reference, b.prediction);
  });
  return pairs;
}

Voi variation_of_information(const Contingency& pairs) {
  const std::map<uint32_t, int64_t> of_reference = pairs.reference_sizes(), of_prediction = pairs.prediction_sizes();
  const double all = static_cast<double>(pairs.voxels);
  Voi voi;
  for (const ContingencyCell& cell : pairs.cells) {
    const double voxels = static_cast<double>(cell.voxels);
    voi.split -= voxels / all * std::log2(voxels / static_cast<double>(of_reference.at(cell.reference)));
    voi.merge -= voxels / all * std::log2(voxels / static_cast<double>(of_prediction.at(cell.prediction)));
  }
  return {std::max(voi.split, 0.0), std::max(voi.merge, 0.0)};
}

double adapted_rand_error(const Contingency& pairs) {
  Contingency inside;
  for (const ContingencyCell& cell : pairs.cells)
    if (cell.reference != 0) inside.cells.push_back(cell);
  double together = 0;
  for (const ContingencyCell& cell : inside.cells)
    together += static_cast<double>(cell.voxels) * static_cast<double>(cell.voxels - 1);
  const double both = squares_less_singles(inside.reference_sizes()) + squares_less_singles(inside.prediction_sizes());
  return both == 0 ? 0 : 1 - 2 * together / both;
}

}  // namespace vox
