// Where to cut: sample number -> case and patch. A pure function of (seed, sample). A sampler is one file and one line
// in samplers.list.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/options.h"
#include "volume/store.h"

namespace vox {

struct PatchChoice {
  int64_t case_index = 0;
  Extent3 begin;  // first voxel of the patch in the volume before augmentation; may be negative where padded
  bool operator==(const PatchChoice&) const = default;
};

class Sampler {  // any thread
 public:
  virtual ~Sampler() = default;
  virtual PatchChoice choose(uint64_t seed, int64_t sample) const = 0;
  // Samples that see everything once: one visit of each case (data.patches_per_case samples each), or the whole grid.
  virtual int64_t samples_per_pass() const = 0;
};

// What samplers ask of the cases; the store answers, and tests answer for it.
class CaseSource {
 public:
  virtual ~CaseSource() = default;
  virtual std::string id(int64_t case_index) const = 0;
  virtual Extent3 extent(int64_t case_index) const = 0;
  virtual std::vector<int64_t> labels_present(int64_t case_index) const = 0;  // the ignore label left out
  virtual const std::vector<int64_t>& foreground_labels(int64_t case_index) const = 0;
  virtual bool foreground_voxel(int64_t case_index, int64_t value, uint64_t random, Extent3* voxel) const = 0;
  virtual int64_t labelled_voxels(int64_t case_index, const Box3& box) const = 0;  // box lies inside the volume
  virtual std::optional<Box3> marked_box(int64_t case_index) const = 0;  // of its mask, or of its label; none: empty
};
std::shared_ptr<const CaseSource> cases_of(Store& store, const DataOptions& data);

struct SamplerSetup {
  std::shared_ptr<const CaseSource> source;
  std::vector<int64_t> cases;  // those to draw from
  DataOptions data;
};
struct SamplerEntry {
  std::string name, help;
  std::unique_ptr<Sampler> (*make)(const SamplerSetup& setup);
};
const std::vector<SamplerEntry>& all_samplers();
const SamplerEntry& sampler_named(const std::string& name);  // Error names what there is

// Error where a patch is larger than this volume and data.padding is none.
void require_patch_fits(const DataOptions& data, const std::string& case_id, const Extent3& volume);

// The sampler that data.sampler names. Error where there is no case, or a patch does not fit and data.padding is none.
std::unique_ptr<Sampler> make_sampler(const SamplerSetup& setup);
std::unique_ptr<Sampler> make_sampler(Store& store, const std::vector<int64_t>& cases, const DataOptions& data);

}  // namespace vox
