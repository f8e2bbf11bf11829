// Where to cut: sample number -> case and patch centre. A pure function of (seed, sample).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/options.h"
#include "volume/store.h"

namespace vox {

struct PatchChoice {
  int64_t case_index = 0;
  Extent3 begin;  // first voxel of the patch in the volume before augmentation; may be negative where padded
};

class Sampler {
 public:
  virtual ~Sampler() = default;
  virtual PatchChoice choose(uint64_t seed, int64_t sample) const = 0;
};

struct SamplerEntry {
  std::string name, help;
  std::unique_ptr<Sampler> (*make)(const Store& store, const std::vector<int64_t>& cases, const DataOptions& data);
};
const std::vector<SamplerEntry>& all_samplers();
std::unique_ptr<Sampler> make_sampler(const Store& store, const std::vector<int64_t>& cases, const DataOptions& data);

}  // namespace vox
