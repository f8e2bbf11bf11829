#include "base/error.h"
#include "config/params.h"
#include "volume/median.h"
#include "volume/preprocess.h"

namespace vox {
namespace {

struct MedianOptions {
  int64_t size = 3;
  void describe(Visitor& v) {
    v.field("size", size,
            {.meaning = "Edge of the cube around a voxel, an odd number", .unit = "voxels", .min = 1, .max = 15});
  }
};

class Median : public PreprocessMethod {
 public:
  explicit Median(const MedianOptions& options) : options_(options) {}
  void apply(Volume& volume, VoxelKind) const override { volume = median_filter(volume, options_.size); }

 private:
  MedianOptions options_;
};

std::unique_ptr<PreprocessMethod> make(const Tree& params, const std::string& where) {
  const auto options = parse_params<MedianOptions>(params, where);
  VOX_CHECK(options.size % 2 == 1, where, ": size is ", options.size, "; it must be odd");
  return std::make_unique<Median>(options);
}

}  // namespace

PreprocessEntry median_preprocess() {
  return {"median", "Replace each voxel by the median of the cube around it", make, rows_of<MedianOptions>};
}

}  // namespace vox
