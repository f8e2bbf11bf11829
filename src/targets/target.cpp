#include "targets/target.h"

#include "base/error.h"
#include "base/text.h"

namespace vox {

#define VOX_TARGET(name) TargetEntry name##_target();
#include "targets/targets.list"
#undef VOX_TARGET

const std::vector<TargetEntry>& all_targets() {
#define VOX_TARGET(name) name##_target(),
  static const std::vector<TargetEntry> entries{
#include "targets/targets.list"
  };
#undef VOX_TARGET
  return entries;
}

std::unique_ptr<Target> make_target(const TargetOptions& options) {
  std::vector<std::string> names;
  for (const TargetEntry& entry : all_targets()) {
    if (entry.name == options.kind) return entry.make(options.params);
    names.push_back(entry.name);
  }
  const std::string meant = nearest(options.kind, names);
  throw Error(concat("no target is called \"", options.kind, "\"; there is label, ", join(names, ", "),
                     meant.empty() ? "" : concat(". Did you mean ", meant, "?")));
}

std::vector<uint8_t> foreground_of(const LabelPatch& patch) {
  std::vector<uint8_t> mask(static_cast<size_t>(patch.extent.voxels()));
  for (size_t i = 0; i < mask.size(); ++i) mask[i] = patch.at(static_cast<int64_t>(i)) != 0;
  return mask;
}

}  // namespace vox
