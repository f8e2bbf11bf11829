// Signed Euclidean distance to a mask, in 127 steps a side: int8 keeps it as small in memory as the mask, and a step of
// 0.3 mm (at a limit of 40) is far below the size of a voxel.
#include <algorithm>
#include <cmath>
#include <vector>

#include "config/params.h"
#include "kernels/edt.h"
#include "volume/preprocess.h"

namespace vox {
namespace {

constexpr double kSteps = 127;

struct DistanceOptions {
  double limit = 50;
  bool is_signed = true;
  void describe(Visitor& v) {
    v.field("limit", limit,
            {.meaning = "Distance that becomes 1, as do larger ones; a voxel of a file without spacing measures 1",
             .unit = "mm",
             .min = 0,
             .max = 1e6,
             .above_min = true});
    v.field("signed", is_signed, {.meaning = "Negative distances to the outside within the mask, down to -1; else 0"});
  }
};

std::vector<uint8_t> mask_of(const Volume& volume) {
  const VolumeInfo& info = volume.info;
  std::vector<uint8_t> mask(static_cast<size_t>(info.voxels()));
  with_type(info.dtype, [&](auto tag) {
    const auto* stored = volume.as<decltype(tag)>();
    for (size_t i = 0; i < mask.size(); ++i)
      mask[i] = static_cast<double>(stored[i]) * info.scale + info.offset != 0 ? 1 : 0;
  });
  return mask;
}

class Distance : public PreprocessMethod {
 public:
  explicit Distance(const DistanceOptions& options) : options_(options) {}

  VolumeInfo plan(const VolumeInfo& info) const override {
    VolumeInfo after = info;
    after.dtype = DType::kInt8;
    after.scale = 1 / kSteps, after.offset = 0;
    return after;
  }
  int64_t scratch_bytes(const VolumeInfo& info) const override {
    return info.voxels() * static_cast<int64_t>(sizeof(uint8_t) + sizeof(float));
  }
  void apply(Volume& volume, VoxelKind) const override {
    std::vector<uint8_t> mask = mask_of(volume);
    Volume after = allocate_volume(plan(volume.info));
    std::vector<float> squared_mm2(mask.size());
    auto* out = after.data.as<int8_t>();
    std::fill_n(out, mask.size(), int8_t{0});
    if (options_.is_signed) write_within(out, mask, -kSteps, after.info, squared_mm2.data());
    for (uint8_t& voxel : mask) voxel = voxel == 0;
    write_within(out, mask, kSteps, after.info, squared_mm2.data());
    volume = std::move(after);
  }

 private:
  // Of voxels in the mask, their distance to the nearest one that is not.
  void write_within(int8_t* out, const std::vector<uint8_t>& mask, double steps, const VolumeInfo& info,
                    float* squared_mm2) const {
    const EdtOptions edt{.spacing = info.spacing.value_or(Spacing3{}), .limit_mm = options_.limit};
    edt_squared_cpu(squared_mm2, mask.data(), info.extent, edt);
    const double factor = steps / options_.limit;
    for (size_t i = 0; i < mask.size(); ++i)
      if (mask[i] != 0) out[i] = static_cast<int8_t>(std::lround(factor * std::sqrt(double{squared_mm2[i]})));
  }

  DistanceOptions options_;
};

std::unique_ptr<PreprocessMethod> make(const Tree& params, const std::string& where) {
  return std::make_unique<Distance>(parse_params<DistanceOptions>(params, where));
}

}  // namespace

PreprocessEntry distance_preprocess() {
  return {"distance", "Replace a mask by the distance to it, negative inside, mapped to -1 .. 1", make,
          rows_of<DistanceOptions>};
}

}  // namespace vox
