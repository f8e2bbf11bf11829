#include "volume/loader.h"

#include <algorithm>

#include "base/error.h"
#include "base/span.h"
#include "io/format.h"
#include "volume/statistics.h"

namespace vox {
namespace {

class Stopwatch {  // adds its life to a sum over threads
 public:
  explicit Stopwatch(std::atomic<int64_t>& sum_ns) : sum_ns_(sum_ns), start_(Clock::now()) {}
  ~Stopwatch() { sum_ns_ += static_cast<int64_t>(seconds_since(start_) * 1e9); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  std::atomic<int64_t>& sum_ns_;
  Clock::time_point start_;
};

bool holds_values(const Unit& unit) {
  return unit.role == Role::kImage;
}

}  // namespace

void require_finite(const Moments& moments, const Unit& unit, const Extent3& extent) {
  const int64_t at = moments.first_not_finite;
  VOX_CHECK(
      moments.not_finite == 0, "the ", name_of(unit.role), " ", unit.name, " holds ", moments.not_finite,
      moments.not_finite == 1 ? " voxel that is NaN or infinite, at z=" : " NaN or infinite voxels, the first at z=",
      at / (extent.y * extent.x), " y=", at / extent.x % extent.y, " x=", at % extent.x,
      "; repair the file, or leave such cases out with data.on_bad_case: skip");
}

void Loader::change(Volume& volume, const Unit& unit) {
  const Span span("preprocess");
  const Stopwatch watch(counts_.preprocess_ns);
  if (holds_values(unit) && !is_integer(volume.info.dtype))  // a step would spread or hide them
    require_finite(moments_of(volume.data.data(), volume.info.dtype, volume.info.voxels()), unit, volume.info.extent);
  if (unit.turn != Reorientation{}) volume = apply(volume, unit.turn);
  preprocess_.apply(volume, unit.role, unit.image_channel);
}

SharedVolume Loader::load(const Unit& unit, ThreadPool* pool) {
  Reservation bytes = budget_.reserve(unit.peak_bytes, unit.title());
  Volume volume = allocate_volume(unit.raw);
  {
    const Span span("decode");
    const Stopwatch watch(counts_.decode_ns);
    open_volume(unit.name)->read(whole(unit.raw.extent), unit.channel, volume.data.data(), pool);
  }
  counts_.bytes += unit.raw.bytes();
  ++counts_.volumes;
  if (unit.changed) change(volume, unit);
  bytes.shrink(volume.data.size());
  return std::make_shared<HeldVolume>(HeldVolume{std::move(volume), std::move(bytes)});
}

void Loader::each_slab(const Unit& unit, int64_t depth, ThreadPool* pool, const Slab& slab) {
  if (!unit.in_slabs) {
    const SharedVolume held = load(unit, pool);
    slab(0, held->volume.info.extent.z, held->volume.info, held->volume.data.data());
    return;
  }
  const Extent3& extent = unit.raw.extent;
  const std::unique_ptr<VolumeReader> reader = open_volume(unit.name);
  const int64_t slice_bytes = extent.y * extent.x * size_of(unit.raw.dtype);
  const auto buffer = buffers_.acquire(std::min(depth, extent.z) * slice_bytes, unit.title());
  for (int64_t z = 0; z < extent.z; z += depth) {
    const int64_t end = std::min(z + depth, extent.z);
    {
      const Span span("decode");
      const Stopwatch watch(counts_.decode_ns);
      reader->read({{z, 0, 0}, {end, extent.y, extent.x}}, unit.channel, buffer.get(), pool);
    }
    slab(z, end, unit.raw, buffer.get());
  }
  counts_.bytes += unit.raw.bytes();
  ++counts_.volumes;
}

}  // namespace vox
