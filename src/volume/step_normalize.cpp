#include "config/params.h"
#include "volume/preprocess.h"

namespace vox {
namespace {

struct NormalizeOptions {
  double mean = 0, std = 1;
  void describe(Visitor& v) {
    v.field("mean", mean, {.meaning = "Subtracted from every value"});
    v.field("std", std, {.meaning = "Divides what is left", .min = 0, .above_min = true});
  }
};

class Normalize : public PreprocessMethod {
 public:
  explicit Normalize(const NormalizeOptions& options) : options_(options) {}
  VolumeInfo plan(const VolumeInfo& info) const override {
    VolumeInfo after = info;
    map_values(after, 1 / options_.std, -options_.mean / options_.std);
    return after;
  }
  bool rewrites_voxels() const override { return false; }
  StepNeeds needs() const override { return StepNeeds::kVoxel; }
  void apply(Volume& volume, VoxelKind) const override {
    map_values(volume.info, 1 / options_.std, -options_.mean / options_.std);
  }

 private:
  NormalizeOptions options_;
};

std::unique_ptr<PreprocessMethod> make(const Tree& params, const std::string& where) {
  return std::make_unique<Normalize>(parse_params<NormalizeOptions>(params, where));
}

}  // namespace

PreprocessEntry normalize_preprocess() {
  return {"normalize", "Subtract a given mean, divide by a given standard deviation", make, rows_of<NormalizeOptions>};
}

}  // namespace vox
