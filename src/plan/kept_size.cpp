#include "plan/kept_size.h"

#include "base/text.h"
#include "config/config.h"
#include "volume/preprocess.h"

namespace vox {

int64_t kept_bytes(const Fingerprint& print, const std::vector<std::string>& steps) {
  const Preprocess preprocess(parse_config("data: {preprocess: [" + join(steps, ", ") + "]}", "/").options.data);
  int64_t bytes = 0;
  for (const CasePrint& item : print.cases) {
    for (size_t channel = 0; channel < item.images.size(); ++channel)
      bytes += preprocess.plan(item.images[channel], Role::kImage, static_cast<int64_t>(channel)).bytes();
    for (const VolumeInfo& other : item.others) bytes += preprocess.plan(other, Role::kLabel, 0).bytes();
  }
  return bytes;
}

}  // namespace vox
