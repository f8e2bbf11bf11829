// How often each pair of labels meets, and what follows for two segmentations of the same voxels.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace vox {

struct ContingencyCell {
  uint32_t reference, prediction;
  int64_t voxels;
};

struct Contingency {
  std::vector<ContingencyCell> cells;  // sorted by reference, then prediction; none is empty
  int64_t voxels = 0;

  std::map<uint32_t, int64_t> reference_sizes() const;
  std::map<uint32_t, int64_t> prediction_sizes() const;
};

enum class Voxels { kAll, kOfEither };  // kOfEither: voxels that are 0 in both do not count
// A voxel where `left_out` (may be empty) is not 0 does not count.
Contingency count_pairs(std::span<const uint32_t> reference, std::span<const uint32_t> prediction, Voxels which,
                        std::span<const uint8_t> left_out = {});

struct Voi {         // bits
  double split = 0;  // H(prediction | reference): one thing of the reference in several of the prediction
  double merge = 0;  // H(reference | prediction)
};
Voi variation_of_information(const Contingency& pairs);

// Adapted Rand error (Arganda-Carreras 2015): 1 - F score of pairs of voxels, without those that are 0 in the
// reference. 0 where there is no pair.
double adapted_rand_error(const Contingency& pairs);

}  // namespace vox
