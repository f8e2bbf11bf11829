#include "augment/gather_timing.h"

#include <time.h>

#include "base/span.h"

namespace vox {
namespace {

double thread_cpu_ms() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

AugmentationOptions rotation_and_scale() {
  AugmentationOptions options;
  options.rotate.enabled = options.scale.enabled = true;
  options.rotate.prob = options.scale.prob = 1;
  options.rotate.degrees = {-30, 30};
  options.scale.range = {0.8, 1.2};
  options.scale.per_axis = true;
  return options;
}

}  // namespace

GatherTiming time_gather(const Volume& volume, const GatherTimingRequest& request) {
  GatherTiming timing;
  timing.patch.resize(static_cast<size_t>(request.patch.voxels()));
  const AugmentationOptions options = rotation_and_scale();
  Extent3 begin;
  for (int axis = 0; axis < 3; ++axis) begin[axis] = (volume.info.extent[axis] - request.patch[axis]) / 2;
  for (int repeat = 0; repeat < request.repeats; ++repeat) {
    const Clock::time_point start = Clock::now();
    const double cpu_start = thread_cpu_ms();
    const Drawn drawn = draw_transforms(options, request.patch, {}, request.seed, repeat);
    timing.map = to_gather_map(drawn.map, begin, request.patch);
    gather_cpu({.data = timing.patch.data(), .extent = request.patch}, view_of(volume), timing.map, {});
    timing.cpu_ms.push_back(thread_cpu_ms() - cpu_start);
    timing.wall_ms.push_back(1e3 * seconds_since(start));
  }
  return timing;
}

}  // namespace vox
