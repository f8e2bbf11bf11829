#include "augment/augment_timing.h"

#include <time.h>

#include "base/error.h"
#include "base/span.h"

namespace vox {
namespace {

double thread_cpu_ms() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

void make_sample(const Volume& image, const Volume& label, const AugmentTimingRequest& request, int64_t sample,
                 AugmentTiming& timing) {
  Random random(request.seed, static_cast<uint64_t>(sample), kPatchStream);
  Extent3 begin;
  for (int axis = 0; axis < 3; ++axis) begin[axis] = random.below(image.info.extent[axis] - request.patch[axis] + 1);
  const Drawn drawn = draw_transforms(request.augmentation, request.patch, {}, request.seed, sample);
  const GatherMap map = to_gather_map(drawn, begin, request.patch);
  gather_cpu({.data = timing.patch.data(), .extent = request.patch}, view_of(image), map, {});
  const bool linear = request.augmentation.label_interpolation == "linear";
  gather_cpu({.data = timing.label.data(), .dtype = DType::kUInt8, .extent = request.patch}, view_of(label), map,
             {.interpolation = linear ? Interpolation::kLabel : Interpolation::kNearest});
  for (const auto& [name, apply] : drawn.intensity) apply({timing.patch.data(), request.patch, 0});
}

}  // namespace

AugmentTiming time_augmentation(const Volume& image, const Volume& label, const AugmentTimingRequest& request) {
  VOX_CHECK(min(image.info.extent, request.patch) == request.patch, "a patch of ", request.patch,
            " does not fit into a volume of ", image.info.extent);
  VOX_CHECK(image.info.extent == label.info.extent, "the image is ", image.info.extent, " and the label ",
            label.info.extent);
  AugmentTiming timing;
  timing.patch.resize(static_cast<size_t>(request.patch.voxels()));
  timing.label.resize(timing.patch.size());
  for (int repeat = 0; repeat < request.repeats; ++repeat) {
    const Clock::time_point start = Clock::now();
    const double cpu_start = thread_cpu_ms();
    make_sample(image, label, request, request.first_sample + repeat, timing);
    timing.cpu_ms.push_back(thread_cpu_ms() - cpu_start);
    timing.wall_ms.push_back(1e3 * seconds_since(start));
  }
  return timing;
}

}  // namespace vox
