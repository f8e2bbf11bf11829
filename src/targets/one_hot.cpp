// One channel per class: 1 where the label is that class.
#include "config/params.h"
#include "config/target_options.h"
#include "targets/target.h"

namespace vox {
namespace {

class OneHot : public Target {
 public:
  explicit OneHot(const OneHotOptions& options) : classes_(options.classes) {}
  int64_t channels() const override { return static_cast<int64_t>(classes_.size()); }

  void make(const LabelPatch& patch, std::byte* out) const override {
    auto* value = reinterpret_cast<uint8_t*>(out);
    for (const int64_t wanted : classes_)
      for (int64_t i = 0; i < patch.extent.voxels(); ++i)
        *value++ = patch.labels[i] == wanted && wanted != patch.ignore_label;
  }

 private:
  std::vector<int64_t> classes_;
};

}  // namespace

TargetEntry one_hot_target() {
  return {"one_hot", "A channel per class: 1 where the label is it",
          [](const Tree& params) -> std::unique_ptr<Target> {
            return std::make_unique<OneHot>(parse_params<OneHotOptions>(params, "loss.targets: one_hot"));
          },
          rows_of<OneHotOptions>};
}

}  // namespace vox
