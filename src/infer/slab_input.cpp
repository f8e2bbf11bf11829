#include "infer/slab_input.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/thread_pool.h"
#include "io/format.h"
#include "io/orientation.h"
#include "volume/loader.h"
#include "volume/statistics.h"

namespace vox {
namespace {

class ChannelSlab {
 public:
  ChannelSlab(const Unit& unit, const Preprocess& preprocess, int64_t depth, ThreadPool& pool)
      : unit_(unit),
        reader_(open_volume(unit.name)),
        pool_(pool),
        info_(unit.raw),
        depth_(std::min(depth, unit.raw.extent.z)),
        slice_bytes_(info_.extent.y * info_.extent.x * size_of(info_.dtype)),
        slices_(depth_ * slice_bytes_) {
    if (unit.changed || !is_integer(info_.dtype)) find_map(preprocess);
  }

  Block fetch(const Box3& box) {
    if (box.begin.z < begin_ || box.end.z > end_) move_to(box.begin.z, box.end.z);
    return {{.data = slices_.data(),
             .dtype = info_.dtype,
             .box = {{begin_, 0, 0}, {end_, info_.extent.y, info_.extent.x}},
             .extent = info_.extent,
             .stride_z = info_.extent.y * info_.extent.x,
             .stride_y = info_.extent.x,
             .scale = info_.scale,
             .offset = info_.offset},
            nullptr};
  }

 private:
  void read(int64_t z_begin, int64_t z_end, std::byte* out) const {
    reader_->read({{z_begin, 0, 0}, {z_end, info_.extent.y, info_.extent.x}}, unit_.channel, out, &pool_);
  }

  void find_map(const Preprocess& preprocess) {
    Moments moments;
    const int64_t slice = info_.extent.y * info_.extent.x;
    for (int64_t z = 0; z < info_.extent.z; z += depth_) {
      const int64_t end = std::min(z + depth_, info_.extent.z);
      read(z, end, slices_.data());
      moments.merge(moments_of(slices_.data(), info_.dtype, (end - z) * slice), z * slice);
    }
    require_finite(moments, unit_, info_.extent);
    VOX_ASSERT(preprocess.map_from(info_, unit_.image_channel, moments));
  }

  void move_to(int64_t begin, int64_t end) {  // slices that stay move to the front, the others are read
    VOX_ASSERT(end - begin <= depth_);
    const int64_t kept_end = begin >= begin_ && begin < end_ ? end_ : begin;
    if (kept_end > begin)
      std::memmove(slices_.data(), slices_.data() + (begin - begin_) * slice_bytes_,
                   static_cast<size_t>((kept_end - begin) * slice_bytes_));
    if (end > kept_end) read(kept_end, end, slices_.data() + (kept_end - begin) * slice_bytes_);
    begin_ = begin;
    end_ = std::max(end, kept_end);
  }

  const Unit unit_;
  const std::unique_ptr<VolumeReader> reader_;
  ThreadPool& pool_;
  VolumeInfo info_;
  const int64_t depth_, slice_bytes_;
  Buffer slices_;
  int64_t begin_ = 0, end_ = 0;  // slices that are here
};

}  // namespace

bool can_read_in_slabs(const CaseUnits& units, const DataOptions& data, const Preprocess& preprocess) {
  const auto keeps_its_grid = [&](const Unit& unit) {
    const std::optional<Affine>& affine = unit.raw.affine;
    const bool turned = data.orientation == "RAS" && affine && !(to_ras(*affine) == Reorientation{});
    return !turned && unit.stored.extent == unit.raw.extent;
  };
  if (units.mask && !keeps_its_grid(*units.mask)) return false;
  return std::all_of(units.images.begin(), units.images.end(), [&](const Unit& unit) {
    VolumeInfo info = unit.raw;
    return keeps_its_grid(unit) && preprocess.map_from(info, unit.image_channel, Moments{});
  });
}

int64_t slab_input_bytes(const CaseUnits& units, int64_t window_z) {
  int64_t bytes = 0;
  for (const Unit& unit : units.images)
    bytes += std::min(window_z, unit.raw.extent.z) * unit.raw.extent.y * unit.raw.extent.x * size_of(unit.raw.dtype);
  return bytes;
}

CaseInput input_in_slabs(const CaseUnits& units, const Case& item, const Preprocess& preprocess, int64_t window_z,
                         ThreadPool& pool) {
  const auto slabs = std::make_shared<std::vector<std::unique_ptr<ChannelSlab>>>();
  for (const Unit& unit : units.images)
    slabs->push_back(std::make_unique<ChannelSlab>(unit, preprocess, window_z, pool));
  const Extent3 extent = units.images.front().raw.extent;
  CaseInput input{item.id, extent, static_cast<int64_t>(units.images.size()), {}, {}};
  input.image = [slabs](int64_t channel, const Box3& box) {
    return (*slabs)[static_cast<size_t>(channel)]->fetch(box);
  };
  if (!item.mask.empty()) input.mask = mask_in_file(item.mask, extent);
  return input;
}

}  // namespace vox
