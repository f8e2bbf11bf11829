// Flow: three channels (z, y, x) that point inwards, the direction in which the distance to the outside of the object
// grows; of length 1 inside objects and 0 elsewhere. Objects are told apart by their labels.
// Unknown where a hidden voxel is nearer than the outside that is seen.
#include <algorithm>
#include <cmath>

#include "config/params.h"
#include "targets/distances.h"

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
    for (int64_t i = 0; i < voxels; ++i) {
      present[patch.seen(i).value_or(0)] = true;
      if (!patch.seen(i))
        for (int axis = 0; axis < 3; ++axis) flow[axis * voxels + i] = kUnknownValue;
    }
    const EdtOptions edt{.spacing = {}, .limit_mm = kLimit};
    const std::vector<float> to_hidden = squared_distances_to_hidden(patch, edt);
    for (int label = 1; label < 256; ++label) {
      if (!present[static_cast<size_t>(label)]) continue;
      const auto is_outside = [&](int64_t voxel) { return patch.seen(voxel).value_or(label) != label; };
      std::vector<float> distance = squared_distances_to(is_outside, patch.extent, edt);
      for (size_t i = 0; i < distance.size(); ++i)
        distance[i] = distance[i] > to_hidden[i] ? kUnknownValue : std::sqrt(distance[i]);
      for (int64_t i = 0; i < voxels; ++i)
        if (patch.seen(i) == label) point_inwards(distance, patch.extent, i, flow);
    }
  }

 private:
  static constexpr double kLimit = 1e4;  // above every distance within a patch

  static void point_inwards(const std::vector<float>& distance, const Extent3& e, int64_t voxel, float* flow) {
    const int64_t step[3] = {e.y * e.x, e.x, 1};
    float slope[3], length = 0;
    for (int axis = 0; axis < 3; ++axis) {
      const int64_t place = voxel / step[axis] % e[axis];
      const int64_t after = place + 1 < e[axis] ? step[axis] : 0, before = place > 0 ? step[axis] : 0;
      slope[axis] = distance[static_cast<size_t>(voxel + after)] - distance[static_cast<size_t>(voxel - before)];
      length += slope[axis] * slope[axis];
    }
    length = std::sqrt(length);
    if (length == 0) return;
    for (int axis = 0; axis < 3; ++axis) flow[axis * e.voxels() + voxel] = slope[axis] / length;
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
