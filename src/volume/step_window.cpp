#include "config/params.h"
#include "volume/preprocess.h"

namespace vox {
namespace {

struct WindowOptions {
  double center = 40, width = 400;
  void describe(Visitor& v) {
    v.field("center", center, {.meaning = "Middle of the window, in Hounsfield units for CT"});
    v.field("width", width, {.meaning = "Width of the window", .min = 0, .above_min = true});
  }
};

class Window : public PreprocessMethod {
 public:
  explicit Window(const WindowOptions& options) : options_(options) {}
  VolumeInfo plan(const VolumeInfo& info) const override {
    VolumeInfo after = info;
    after.dtype = dtype_after_clip(info, low(), low() + options_.width);
    map_values(after, 1 / options_.width, -low() / options_.width);
    return after;
  }
  StepNeeds needs() const override { return StepNeeds::kVoxel; }
  void apply(Volume& volume, VoxelKind) const override {
    clip_values(volume, low(), low() + options_.width);
    map_values(volume.info, 1 / options_.width, -low() / options_.width);
  }

 private:
  double low() const { return options_.center - options_.width / 2; }

  WindowOptions options_;
};

std::unique_ptr<PreprocessMethod> make(const Tree& params, const std::string& where) {
  return std::make_unique<Window>(parse_params<WindowOptions>(params, where));
}

}  // namespace

PreprocessEntry window_preprocess() {
  return {"window", "Limit values to a CT window and map it to 0 .. 1", make, rows_of<WindowOptions>};
}

}  // namespace vox
