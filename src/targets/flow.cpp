// Flow: three channels (z, y, x) that point inwards, the direction in which the distance to the outside of the object
// grows; of length 1 inside objects and 0 elsewhere. Objects are told apart by their labels.
#include <cmath>

#include "config/params.h"
#include "kernels/edt.h"
#include "targets/target.h"

namespace vox {
namespace {

struct FlowOptions {
  void describe(Visitor&) {}
};

class Flow : public Target {
 public:
  int64_t channels() const override { return 3; }
  DType dtype() const override { return DType::kFloat32; }

  void make(const LabelPatch& patch, std::byte* out) const override {
    const int64_t voxels = patch.extent.voxels();
    auto* flow = reinterpret_cast<float*>(out);
    std::fill(flow, flow + 3 * voxels, 0.0f);
    std::vector<bool> present(256);
    for (int64_t i = 0; i < voxels; ++i) present[patch.at(i)] = true;
    std::vector<uint8_t> mask(static_cast<size_t>(voxels));
    std::vector<float> distance(mask.size());
    for (int label = 1; label < 256; ++label) {
      if (!present[static_cast<size_t>(label)]) continue;
      for (int64_t i = 0; i < voxels; ++i) mask[static_cast<size_t>(i)] = patch.at(i) == label;
      edt_squared_cpu(distance.data(), mask.data(), patch.extent, {.spacing = {}, .limit_mm = kLimit});
      for (float& value : distance) value = std::sqrt(value);
      point_inwards(distance, mask, patch.extent, flow);
    }
  }

 private:
  static constexpr double kLimit = 1e4;  // an object that fills the patch has no outside: its flow is 0

  static void point_inwards(const std::vector<float>& distance, const std::vector<uint8_t>& mask, const Extent3& e,
                            float* flow) {
    const int64_t step[3] = {e.y * e.x, e.x, 1};
    int64_t voxel = 0;
    for (int64_t z = 0; z < e.z; ++z) {
      for (int64_t y = 0; y < e.y; ++y) {
        for (int64_t x = 0; x < e.x; ++x, ++voxel) {
          if (!mask[static_cast<size_t>(voxel)]) continue;
          const Extent3 place{z, y, x};
          float slope[3], length = 0;
          for (int axis = 0; axis < 3; ++axis) {
            const int64_t after = place[axis] + 1 < e[axis] ? step[axis] : 0, before = place[axis] > 0 ? step[axis] : 0;
            slope[axis] = distance[static_cast<size_t>(voxel + after)] - distance[static_cast<size_t>(voxel - before)];
            length += slope[axis] * slope[axis];
          }
          length = std::sqrt(length);
          if (length == 0) continue;
          for (int axis = 0; axis < 3; ++axis) flow[axis * e.voxels() + voxel] = slope[axis] / length;
        }
      }
    }
  }
};

}  // namespace

TargetEntry flow_target() {
  return {"flow", "Directions (z, y, x) towards the inside of each object",
          [](const Tree& params) -> std::unique_ptr<Target> {
            parse_params<FlowOptions>(params, "loss.targets: flow");
            return std::make_unique<Flow>();
          },
          rows_of<FlowOptions>};
}

}  // namespace vox
