#include "base/error.h"
#include "config/params.h"
#include "volume/preprocess.h"

namespace vox {
namespace {

struct ClipOptions {
  double min = 0, max = 1;
  void describe(Visitor& v) {
    v.field("min", min, {.meaning = "Values below become this"});
    v.field("max", max, {.meaning = "Values above become this"});
  }
};

class Clip : public PreprocessMethod {
 public:
  explicit Clip(const ClipOptions& options) : options_(options) {}
  VolumeInfo plan(const VolumeInfo& info) const override {
    VolumeInfo after = info;
    after.dtype = dtype_after_clip(info, options_.min, options_.max);
    return after;
  }
  StepNeeds needs() const override { return StepNeeds::kVoxel; }
  void apply(Volume& volume, VoxelKind) const override { clip_values(volume, options_.min, options_.max); }

 private:
  ClipOptions options_;
};

std::unique_ptr<PreprocessMethod> make(const Tree& params, const std::string& where) {
  const auto options = parse_params<ClipOptions>(params, where);
  VOX_CHECK(options.min < options.max, where, ": min is ", options.min, " and max is ", options.max,
            "; min must be below max");
  return std::make_unique<Clip>(options);
}

}  // namespace

PreprocessEntry clip_preprocess() {
  return {"clip", "Limit values to a range", make, rows_of<ClipOptions>};
}

}  // namespace vox
