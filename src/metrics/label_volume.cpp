#include "metrics/label_volume.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/buffer.h"
#include "base/error.h"
#include "base/text.h"
#include "base/thread_pool.h"

namespace vox {
namespace {

constexpr int64_t kSlabVoxels = 4 << 20;
constexpr double kNearlyOne = 0.99;  // 255 by a scale of 1/255 need not be 1

template <class Out, class Convert>
std::vector<Out> read_whole(const VolumeSource& source, ThreadPool& pool, Convert convert) {
  const Extent3 extent = source.info.extent;
  std::vector<Out> out(static_cast<size_t>(extent.voxels()));
  const double scale = source.info.scale, offset = source.info.offset;
  for_each_slab(source, pool, [&](const Box3& box, const std::byte* voxels) {
    Out* to = out.data() + box.begin.z * extent.y * extent.x;
    with_type(source.info.dtype, [&](auto typed) {
      using T = decltype(typed);
      const T* from = reinterpret_cast<const T*>(voxels);
      for (int64_t i = 0; i < box.voxels(); ++i) to[i] = convert(static_cast<double>(from[i]) * scale + offset);
    });
  });
  return out;
}

template <class Label>
std::vector<Label> read_labels(const VolumeSource& source, ThreadPool& pool) {
  constexpr double kMost = static_cast<double>(std::numeric_limits<Label>::max());
  return read_whole<Label>(source, pool, [&](double value) {
    VOX_CHECK(value >= 0 && value <= kMost && value == std::floor(value), source.name, ": holds the value ",
              shortest(value), ", which is no label; expected whole numbers from 0 to ", shortest(kMost), ".");
    return static_cast<Label>(value);
  });
}

}  // namespace

int64_t slab_height(const VolumeInfo& info) {
  const int64_t slice = std::max<int64_t>(info.extent.y * info.extent.x, 1);
  const int64_t chunk = std::max<int64_t>(info.chunk.z, 1);
  const int64_t wanted = std::max<int64_t>(kSlabVoxels / slice, 1);
  return std::max<int64_t>(wanted / chunk, 1) * chunk;
}

void require_comparable(const VolumeSource& prediction, const VolumeSource& reference) {
  for (const VolumeSource* source : {&prediction, &reference}) {
    VOX_CHECK(source->info.channels == 1, source->name, ": has ", source->info.channels,
              " channels; expected one channel of labels.");
  }
  VOX_CHECK(prediction.info.extent == reference.info.extent, prediction.name, ": the prediction is ",
            prediction.info.extent, " but the reference ", reference.name, " is ", reference.info.extent,
            "; was one of them resampled or cropped?");
}

void for_each_slab(const VolumeSource& source, ThreadPool& pool,
                   const std::function<void(const Box3& box, const std::byte* voxels)>& slab) {
  const Extent3 extent = source.info.extent;
  const int64_t height = slab_height(source.info);
  pool.for_each((extent.z + height - 1) / height, [&](int64_t i) {
    const Box3 box{{i * height, 0, 0}, {std::min((i + 1) * height, extent.z), extent.y, extent.x}};
    Buffer voxels(std::max<int64_t>(box.voxels() * size_of(source.info.dtype), 1));
    source.read(box, voxels.data());
    slab(box, voxels.data());
  });
}

std::vector<uint16_t> read_class_labels(const VolumeSource& source, ThreadPool& pool) {
  return read_labels<uint16_t>(source, pool);
}

std::vector<uint32_t> read_instance_labels(const VolumeSource& source, ThreadPool& pool) {
  return read_labels<uint32_t>(source, pool);
}

std::vector<uint8_t> read_mask(const VolumeSource& source, ThreadPool& pool) {
  return read_whole<uint8_t>(source, pool, [&](double value) {
    VOX_CHECK(!std::isnan(value), source.name, ": holds NaN; expected a mask, 0 for background.");
    VOX_CHECK(!(value > 0 && value < kNearlyOne), source.name, ": holds the value ", shortest(value),
              ", and expected is a mask, 0 for background. Is this a map of probabilities? Predict without "
              "--probabilities, or cut it by `voxloom convert --postprocess \"[{name: threshold}]\"`.");
    return static_cast<uint8_t>(value != 0);
  });
}

std::vector<uint8_t> read_where(const VolumeSource& source, double label, ThreadPool& pool) {
  return read_whole<uint8_t>(source, pool, [&](double value) { return static_cast<uint8_t>(value == label); });
}

}  // namespace vox
