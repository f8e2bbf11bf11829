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

namespace {

void check_patch_fits(const SamplerSetup& setup) {
  const Extent3 patch = setup.data.patch_size;
  for (const int64_t index : setup.cases) {
    const Extent3 volume = setup.source->extent(index);
    VOX_CHECK(
        setup.data.padding != "none" || min(patch, volume) == patch, "case ", setup.source->id(index), ": the patch ",
        patch, " is larger than the volume ", volume,
        " and data.padding is none; make data.patch_size smaller or set data.padding to constant, edge or reflect");
  }
}

}  // namespace

std::unique_ptr<Sampler> make_sampler(const SamplerSetup& setup) {
  VOX_CHECK(!setup.cases.empty(), "there is no case to draw patches from; does the split leave this part empty?");
  VOX_CHECK(setup.data.patches_per_case >= 1, "data.patches_per_case is ", setup.data.patches_per_case,
            "; it must be at least 1");
  VOX_CHECK(setup.data.patch_size.z > 0 && setup.data.patch_size.y > 0 && setup.data.patch_size.x > 0,
            "data.patch_size is ", setup.data.patch_size, "; every side must be at least 1");
  check_patch_fits(setup);
  std::vector<std::string> known;
  for (const SamplerEntry& entry : all_samplers()) {
    if (entry.name == setup.data.sampler) return entry.make(setup);
    known.push_back(entry.name);
  }
  throw Error(concat("data.sampler \"", setup.data.sampler, "\" is unknown; known: ", join(known, ", ")));
}

}  // namespace vox
