// Everything that is not background, whatever its class.
#include <algorithm>

#include "config/params.h"
#include "targets/target.h"

namespace vox {
namespace {

struct ForegroundOptions {
  void describe(Visitor&) {}
};

class Foreground : public Target {
 public:
  void make(const LabelPatch& patch, std::byte* out) const override {
    const std::vector<uint8_t> mask = foreground_of(patch);
    std::copy(mask.begin(), mask.end(), reinterpret_cast<uint8_t*>(out));
  }
};

}  // namespace

TargetEntry foreground_target() {
  return {"foreground", "Everything that is not background",
          [](const Tree& params) -> std::unique_ptr<Target> {
            parse_params<ForegroundOptions>(params, "loss.targets: foreground");
            return std::make_unique<Foreground>();
          },
          rows_of<ForegroundOptions>};
}

}  // namespace vox
