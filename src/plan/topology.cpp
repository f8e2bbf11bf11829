#include "plan/topology.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace vox {
namespace {

constexpr int64_t kSmallestEdge = 4;        // of a feature map
constexpr double kReferenceValues = 560e6;  // feature map values that fill 8 GB with a batch of kReferenceBatch
constexpr double kReferenceBatch = 2;
constexpr double kMostOfDataset = 0.05;         // in one batch
constexpr double kAnisotropic = 3;              // this much coarser than the other axes
constexpr double kSmallestShareOfImage = 0.25;  // that a patch must cover, else a coarser grid helps
constexpr int64_t kFirstFeatures = 32, kMostFeatures = 320;

double round_half_even(double value) {
  return std::nearbyint(value);
}

double product(const Size3& size) {
  return size[0] * size[1] * size[2];
}

Size3 sizes_of(const Extent3& extent) {
  return {static_cast<double>(extent.z), static_cast<double>(extent.y), static_cast<double>(extent.x)};
}

Spacing3 spacing_of(const Size3& values) {
  return {values[0], values[1], values[2]};
}

template <class Value>
Size3 percentile_per_axis(const std::vector<CaseShape>& cases, double percent, Value&& value) {
  Size3 result{};
  for (int axis = 0; axis < 3; ++axis) {
    std::vector<double> values;
    for (const CaseShape& item : cases) values.push_back(value(item, axis));
    result[static_cast<size_t>(axis)] = percentile(std::move(values), percent);
  }
  return result;
}

// What one look at all axes decides: which of them the next stage halves.
std::array<bool, 3> axes_to_pool(const Spacing3& spacing, const Size3& size) {
  std::array<bool, 3> pooled{};
  double finest = std::numeric_limits<double>::infinity();
  for (int axis = 0; axis < 3; ++axis)
    if (size[static_cast<size_t>(axis)] >= 2 * kSmallestEdge) finest = std::min(finest, spacing[axis]);
  for (int axis = 0; axis < 3; ++axis) {
    const auto a = static_cast<size_t>(axis);
    pooled[a] = size[a] >= 2 * kSmallestEdge && spacing[axis] / finest < 2;
  }
  if (std::count(pooled.begin(), pooled.end(), true) == 1)  // a lone axis must be longer
    for (size_t a = 0; a < 3; ++a) pooled[a] = pooled[a] && size[a] >= 3 * kSmallestEdge;
  return pooled;
}

Extent3 padded(const Size3& size, const Extent3& divisor) {
  Extent3 result;
  for (int axis = 0; axis < 3; ++axis) {
    const auto d = static_cast<double>(divisor[axis]);
    result[axis] = static_cast<int64_t>(std::ceil(size[static_cast<size_t>(axis)] / d) * d);
  }
  return result;
}

// The patch takes the shape of the tissue it covers: as many millimetres along each axis, 256^3 voxels in all, but
// never more than the median volume has.
Size3 first_patch(const Spacing3& spacing, const Size3& median_shape) {
  const Size3 inverse{1 / spacing.z_mm, 1 / spacing.y_mm, 1 / spacing.x_mm};
  const double factor = std::cbrt(256.0 * 256.0 * 256.0 / product(inverse));
  Size3 patch{};
  for (size_t axis = 0; axis < 3; ++axis)
    patch[axis] = std::min(round_half_even(inverse[axis] * factor), median_shape[axis]);
  return patch;
}

int largest_beside(const Extent3& patch, const Size3& median_shape) {  // the last of equals, as a stable sort has it
  int largest = 0;
  const auto share = [&](int axis) {
    return static_cast<double>(patch[axis]) / median_shape[static_cast<size_t>(axis)];
  };
  for (int axis = 1; axis < 3; ++axis)
    if (share(axis) >= share(largest)) largest = axis;
  return largest;
}

// One step less along an axis. The step is that of the smaller patch: it may have one pooling less, and 224 lies
// between 256 and 192.
Topology shrunk(const Topology& topology, const Spacing3& spacing, int axis) {
  Extent3 patch = topology.patch;
  patch[axis] -= topology.divisor[axis];
  const Extent3 divisor = pool_axes(spacing, sizes_of(patch)).divisor;
  patch = topology.patch;
  patch[axis] -= divisor[axis];
  return pool_axes(spacing, sizes_of(patch));
}

NetworkPlan plan_axes(const Spacing3& spacing, const Size3& median_shape, int64_t classes, double dataset_voxels) {
  NetworkPlan plan{.spacing = spacing, .median_shape = median_shape, .topology = {}, .features = {}};
  plan.topology = pool_axes(spacing, first_patch(spacing, median_shape));
  double values = feature_map_values(plan.topology, classes);
  while (values > kReferenceValues) {
    plan.topology = shrunk(plan.topology, spacing, largest_beside(plan.topology.patch, median_shape));
    values = feature_map_values(plan.topology, classes);
  }
  plan.features = features_of(plan.topology.strides.size());
  constexpr int64_t kSmallestBatch = 2;
  const auto patch_voxels = static_cast<double>(plan.topology.patch.voxels());
  const auto by_memory = static_cast<int64_t>(round_half_even(kReferenceValues / values * kReferenceBatch));
  const auto by_dataset = static_cast<int64_t>(round_half_even(dataset_voxels * kMostOfDataset / patch_voxels));
  plan.batch_by_memory = std::max(by_memory, kSmallestBatch);
  plan.batch = std::max(std::min(by_memory, by_dataset), kSmallestBatch);
  return plan;
}

// Would a coarser grid, on which a patch covers a quarter of a volume, be at least twice as small?
bool wants_low_resolution(const NetworkPlan& plan, int64_t classes, double cases) {
  constexpr double kStep = 1.03;
  const double full_voxels = product(plan.median_shape);
  double voxels = full_voxels, covered = static_cast<double>(plan.topology.patch.voxels());
  Spacing3 spacing = plan.spacing;
  while (covered / voxels < kSmallestShareOfImage) {
    const double coarsest = std::max({spacing.z_mm, spacing.y_mm, spacing.x_mm});
    bool any_fine = false;
    for (int axis = 0; axis < 3; ++axis) any_fine = any_fine || coarsest / spacing[axis] > 2;
    for (int axis = 0; axis < 3; ++axis)
      if (!any_fine || coarsest / spacing[axis] > 2) spacing[axis] *= kStep;
    Size3 shape{}, rounded{};
    for (int axis = 0; axis < 3; ++axis) {
      const auto a = static_cast<size_t>(axis);
      shape[a] = plan.spacing[axis] / spacing[axis] * plan.median_shape[a];
      rounded[a] = std::max(1.0, round_half_even(shape[a]));
    }
    voxels = product(shape);
    covered = static_cast<double>(plan_axes(spacing, rounded, classes, voxels * cases).topology.patch.voxels());
  }
  return full_voxels / voxels >= 2;
}

// Axes in the order of the rules: the coarsest first.
std::array<int, 3> coarsest_first(const Spacing3& spacing) {
  int coarsest = 0;
  for (int axis = 1; axis < 3; ++axis)
    if (spacing[axis] > spacing[coarsest]) coarsest = axis;
  std::array<int, 3> order{coarsest, 0, 0};
  size_t next = 1;
  for (int axis = 0; axis < 3; ++axis)
    if (axis != coarsest) order[next++] = axis;
  return order;
}

Extent3 back_in_order(const Extent3& values, const std::array<int, 3>& order) {
  Extent3 result;
  for (int i = 0; i < 3; ++i) result[order[static_cast<size_t>(i)]] = values[i];
  return result;
}

}  // namespace

double percentile(std::vector<double> values, double percent) {
  VOX_ASSERT(!values.empty());
  std::sort(values.begin(), values.end());
  const double rank = percent / 100 * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(rank);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (rank - static_cast<double>(below)) * (values[above] - values[below]);
}

Topology pool_axes(const Spacing3& start_spacing, const Size3& start_size) {
  Topology topology{.patch = {}, .divisor = {1, 1, 1}, .strides = {{1, 1, 1}}, .kernels = {}};
  Spacing3 spacing = start_spacing;
  Size3 size = start_size;
  Extent3 kernel{1, 1, 1};
  for (auto pooled = axes_to_pool(spacing, size); pooled != std::array<bool, 3>{};
       pooled = axes_to_pool(spacing, size)) {
    const double finest = std::min({spacing.z_mm, spacing.y_mm, spacing.x_mm});
    for (int axis = 0; axis < 3; ++axis)
      if (spacing[axis] / finest < 2) kernel[axis] = 3;  // and so it stays
    Extent3 stride{1, 1, 1};
    for (int axis = 0; axis < 3; ++axis) {
      const auto a = static_cast<size_t>(axis);
      if (!pooled[a]) continue;
      stride[axis] = 2;
      topology.divisor[axis] *= 2;
      spacing[axis] *= 2;
      size[a] = std::ceil(size[a] / 2);
    }
    topology.strides.push_back(stride);
    topology.kernels.push_back(kernel);
  }
  topology.kernels.push_back({3, 3, 3});
  topology.patch = padded(start_size, topology.divisor);
  return topology;
}

std::vector<int64_t> features_of(size_t stages) {
  std::vector<int64_t> features;
  for (size_t stage = 0; stage < stages; ++stage)
    features.push_back(std::min(kMostFeatures, stage < 8 ? kFirstFeatures << stage : kMostFeatures));
  return features;
}

std::vector<double> supervision_weights(size_t outputs) {
  std::vector<double> weights(outputs, 0);
  double sum = 0, weight = 1;
  for (size_t i = 0; i + 1 < outputs; ++i, weight /= 2) sum += weights[i] = weight;
  for (double& value : weights) value /= sum;
  return weights;
}

double feature_map_values(const Topology& topology, int64_t classes) {
  constexpr double kConvs = 2;
  const std::vector<int64_t> features = features_of(topology.strides.size());
  Extent3 size = topology.patch;
  double values = 0;
  for (size_t stage = 0; stage < features.size(); ++stage) {
    for (int axis = 0; axis < 3; ++axis) size[axis] /= topology.strides[stage][axis];
    const double map = static_cast<double>(size.voxels() * features[stage]);
    values += kConvs * map;                                         // encoder
    if (stage + 1 < features.size()) values += (kConvs + 1) * map;  // decoder, and the way up to it
    if (stage == 0) values += static_cast<double>(size.voxels() * classes);
  }
  return values;
}

Spacing3 target_spacing(const std::vector<CaseShape>& cases) {
  const auto spacing = [](const CaseShape& item, int axis) { return item.spacing[axis]; };
  const auto size = [](const CaseShape& item, int axis) { return static_cast<double>(item.extent[axis]); };
  Spacing3 target = spacing_of(percentile_per_axis(cases, 50, spacing));
  const Size3 median_size = percentile_per_axis(cases, 50, size);
  const std::array<int, 3> order = coarsest_first(target);
  const auto worst = order[0];
  const double other_spacing = std::max(target[order[1]], target[order[2]]);
  const double other_size =
      std::min(median_size[static_cast<size_t>(order[1])], median_size[static_cast<size_t>(order[2])]);
  const bool coarse = target[worst] > kAnisotropic * other_spacing;
  const bool few_slices = median_size[static_cast<size_t>(worst)] * kAnisotropic < other_size;
  if (!coarse || !few_slices) return target;
  const double finer = percentile_per_axis(cases, 10, spacing)[static_cast<size_t>(worst)];
  target[worst] = finer < other_spacing ? other_spacing + 1e-5 : finer;
  return target;
}

NetworkPlan plan_network(const std::vector<CaseShape>& cases, int64_t classes) {
  VOX_ASSERT(!cases.empty());
  const Spacing3 target = target_spacing(cases);
  const std::array<int, 3> order = coarsest_first(target);
  const Size3 median = percentile_per_axis(cases, 50, [&](const CaseShape& item, int axis) {
    return round_half_even(item.spacing[axis] / target[axis] * static_cast<double>(item.extent[axis]));
  });
  Spacing3 spacing;
  Size3 shape{};
  for (int i = 0; i < 3; ++i) {
    spacing[i] = target[order[static_cast<size_t>(i)]];
    shape[static_cast<size_t>(i)] = std::max(1.0, median[static_cast<size_t>(order[static_cast<size_t>(i)])]);
  }
  const auto count = static_cast<double>(cases.size());
  NetworkPlan plan = plan_axes(spacing, shape, classes, product(shape) * count);
  plan.low_resolution = wants_low_resolution(plan, classes, count);
  plan.spacing = target;
  plan.median_shape = median;
  plan.topology.patch = back_in_order(plan.topology.patch, order);
  plan.topology.divisor = back_in_order(plan.topology.divisor, order);
  for (Extent3& stride : plan.topology.strides) stride = back_in_order(stride, order);
  for (Extent3& kernel : plan.topology.kernels) kernel = back_in_order(kernel, order);
  return plan;
}

}  // namespace vox
