#include "patch/sampler.h"

#include "base/error.h"
#include "base/text.h"

namespace vox {

#define VOX_SAMPLER(name) SamplerEntry name##_sampler();
#include "patch/samplers.list"
#undef VOX_SAMPLER

const std::vector<SamplerEntry>& all_samplers() {
#define VOX_SAMPLER(name) name##_sampler(),
  static const std::vector<SamplerEntry> entries{
#include "patch/samplers.list"
  };
#undef VOX_SAMPLER
  return entries;
}

const SamplerEntry& sampler_named(const std::string& name) {
  std::vector<std::string> known;
  for (const SamplerEntry& entry : all_samplers()) {
    if (entry.name == name) return entry;
    known.push_back(entry.name);
  }
  throw Error(concat("data.sampler \"", name, "\" is unknown; known: ", join(known, ", ")));
}

void require_patch_fits(const DataOptions& data, const std::string& case_id, const Extent3& volume) {
  const Extent3 patch = data.patch_size;
  VOX_CHECK(data.padding != "none" || min(patch, volume) == patch, "case ", case_id, ": the patch ", patch,
            " is larger than the volume ", volume,
            " and data.padding is none; make data.patch_size smaller or set data.padding to constant, edge or reflect");
}

std::unique_ptr<Sampler> make_sampler(const SamplerSetup& setup) {
  VOX_CHECK(!setup.cases.empty(), "there is no case to draw patches from; does the split leave this part empty?");
  VOX_CHECK(setup.data.patches_per_case >= 1, "data.patches_per_case is ", setup.data.patches_per_case,
            "; it must be at least 1");
  VOX_CHECK(setup.data.patch_size.z > 0 && setup.data.patch_size.y > 0 && setup.data.patch_size.x > 0,
            "data.patch_size is ", setup.data.patch_size, "; every side must be at least 1");
  for (const int64_t index : setup.cases)
    require_patch_fits(setup.data, setup.source->id(index), setup.source->extent(index));
  return sampler_named(setup.data.sampler).make(setup);
}

}  // namespace vox
