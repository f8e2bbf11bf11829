#include "nets/stages.h"

#include <algorithm>

#include "base/error.h"

namespace vox {
namespace {

std::vector<int64_t> filters_of(const ModelOptions& options, const StageDefaults& defaults) {
  constexpr int64_t kWidest = 320;
  std::vector<int64_t> filters = options.filters.empty() ? defaults.filters : options.filters;
  if (filters.size() != 1) return filters;
  const size_t count = options.strides.empty() ? defaults.filters.size() : options.strides.size();
  while (filters.size() < count) filters.push_back(std::max(filters[0], std::min(kWidest, 2 * filters.back())));
  return filters;
}

void require_sound(const StagePlan& stage, size_t number) {
  VOX_CHECK(stage.filters > 0 && stage.convs > 0, "model: stage ", number, " has ", stage.filters, " filters and ",
            stage.convs, " convolutions; both must be positive");
  for (int axis = 0; axis < 3; ++axis) {
    VOX_CHECK(stage.stride[axis] > 0 && stage.kernel[axis] > 0 && stage.kernel[axis] % 2 == 1, "model: stage ", number,
              " has stride ", stage.stride, " and kernel ", stage.kernel, "; strides are positive, kernels odd");
  }
}

}  // namespace

std::vector<StagePlan> plan_stages(const ModelOptions& options, const StageDefaults& defaults) {
  const std::vector<int64_t> filters = filters_of(options, defaults);
  const size_t count = filters.size();
  VOX_CHECK(count >= 2, "model.filters has ", count, " entries; a U-Net needs two stages at least");
  const auto fits = [&](const char* key, size_t given) {
    VOX_CHECK(given == 0 || given == count, "model.", key, " has ", given, " entries but model.filters has ", count,
              "; give one per stage, or none");
  };
  fits("strides", options.strides.size());
  fits("kernels", options.kernels.size());
  const std::vector<int64_t>& convs = options.convs_per_stage;
  if (convs.size() != 1) fits("convs_per_stage", convs.size());
  std::vector<StagePlan> stages(count);
  for (size_t s = 0; s < count; ++s) {
    StagePlan& stage = stages[s];
    stage.filters = filters[s];
    stage.stride = s > 0 ? defaults.stride : defaults.first_stride;
    if (!options.strides.empty()) stage.stride = options.strides[s];
    if (!options.kernels.empty()) stage.kernel = options.kernels[s];
    stage.convs = convs.empty() ? defaults.convs : convs[convs.size() == 1 ? 0 : s];
    require_sound(stage, s);
  }
  return stages;
}

std::vector<int64_t> decoder_convs(const ModelOptions& options, const std::vector<StagePlan>& plan) {
  const std::vector<int64_t>& given = options.decoder_convs;
  VOX_CHECK(given.size() <= 1 || given.size() == plan.size() - 1, "model.decoder_convs has ", given.size(),
            " entries but the decoder has ", plan.size() - 1, " stages; give one per stage, or one number for all");
  std::vector<int64_t> result;
  for (size_t level = 0; level + 1 < plan.size(); ++level) {
    result.push_back(given.empty() ? plan[level].convs : given[given.size() == 1 ? 0 : level]);
  }
  return result;
}

void require_full_resolution(const std::vector<StagePlan>& plan) {
  VOX_CHECK(plan.front().stride == (Extent3{1, 1, 1}), "model.strides begins with ", plan.front().stride,
            "; this network predicts at the resolution of its first stage, so the first stride must be 1");
}

Extent3 divisor_of(const std::vector<StagePlan>& plan) {
  Extent3 product{1, 1, 1};
  for (const StagePlan& stage : plan) {
    for (int axis = 0; axis < 3; ++axis) product[axis] *= stage.stride[axis];
  }
  return product;
}

}  // namespace vox
