#include "infer/slab_input.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/thread_pool.h"
#include "io/format.h"
#include "volume/loader.h"
#include "volume/statistics.h"

namespace vox {
namespace {

// Whole slices around boxes that come by ascending z: those that the next box needs too stay, the others are read.
class MovingSlices {
 public:
  using Read = std::function<void(int64_t z_begin, int64_t z_end, std::byte* out)>;
  MovingSlices(const VolumeInfo& info, int64_t depth, Read read)
      : info_(info),
        depth_(std::min(depth, info.extent.z)),
        slice_bytes_(info.extent.y * info.extent.x * size_of(info.dtype)),
        read_(std::move(read)),
        slices_(depth_ * slice_bytes_) {}

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
  void move_to(int64_t begin, int64_t end) {
    VOX_ASSERT(end - begin <= depth_);
    const int64_t kept_end = begin >= begin_ && begin < end_ ? end_ : begin;
    if (kept_end > begin)
      std::memmove(slices_.data(), slices_.data() + (begin - begin_) * slice_bytes_,
                   static_cast<size_t>((kept_end - begin) * slice_bytes_));
    if (end > kept_end) read_(kept_end, end, slices_.data() + (kept_end - begin) * slice_bytes_);
    begin_ = begin;
    end_ = std::max(end, kept_end);
  }

  const VolumeInfo info_;
  const int64_t depth_, slice_bytes_;
  const Read read_;
  Buffer slices_;
  int64_t begin_ = 0, end_ = 0;  // slices that are here
};

class ChannelSlab {
 public:
  ChannelSlab(const Unit& unit, const Preprocess& preprocess, int64_t depth, ThreadPool& pool)
      : unit_(unit),
        preprocess_(preprocess),
        reader_(open_volume(unit.name)),
        pool_(pool),
        depth_(std::min(depth, unit.raw.extent.z)),
        rewrites_(preprocess.rewrites_voxels(Role::kImage, unit.image_channel)) {
    look_through();
    info_ = info_after();
    slices_.emplace(info_, depth_, [this](int64_t begin, int64_t end, std::byte* out) { read(begin, end, out); });
  }
  ChannelSlab(const ChannelSlab&) = delete;  // its slices know where it is
  ChannelSlab& operator=(const ChannelSlab&) = delete;

  Block fetch(const Box3& box) { return slices_->fetch(box); }

 private:
  void read_raw(int64_t z_begin, int64_t z_end, std::byte* out) const {
    const Extent3& extent = unit_.raw.extent;
    reader_->read({{z_begin, 0, 0}, {z_end, extent.y, extent.x}}, unit_.channel, out, &pool_);
  }

  Volume raw_slices(int64_t z_begin, int64_t z_end) const {
    VolumeInfo info = unit_.raw;
    info.extent.z = z_end - z_begin;
    Volume slices = allocate_volume(info);
    read_raw(z_begin, z_end, slices.data.data());
    return slices;
  }

  void preprocess(Volume& slices) const { preprocess_.apply_to_slices(slices, unit_.image_channel, seen_); }

  // One pass for each step that needs the moments of all voxels; the first also looks for NaN, which a step would hide.
  void look_through() {
    const size_t passes = preprocess_.passes(unit_.image_channel);
    bool finite = is_integer(unit_.raw.dtype);
    while (!finite || seen_.size() < passes) {
      Moments raw, stored;
      for (int64_t z = 0; z < unit_.raw.extent.z; z += depth_) {
        Volume slices = raw_slices(z, std::min(z + depth_, unit_.raw.extent.z));
        const int64_t first = z * unit_.raw.extent.y * unit_.raw.extent.x;
        if (!finite) raw.merge(moments_of(slices), first);
        preprocess(slices);
        if (seen_.size() < passes) stored.merge(moments_of(slices), first);
      }
      require_finite(raw, unit_, unit_.raw.extent);
      finite = true;
      if (seen_.size() < passes) seen_.push_back(stored);
    }
  }

  static Moments moments_of(const Volume& slices) {
    return vox::moments_of(slices.data.data(), slices.info.dtype, slices.info.voxels());
  }

  VolumeInfo info_after() const {  // a single voxel has the type, scale and offset of all
    VolumeInfo info = unit_.raw;
    info.extent = {1, 1, 1};
    Volume voxel = allocate_volume(info);
    preprocess(voxel);
    voxel.info.extent = unit_.raw.extent;
    return voxel.info;
  }

  void read(int64_t z_begin, int64_t z_end, std::byte* out) const {
    if (!rewrites_) return read_raw(z_begin, z_end, out);
    Volume slices = raw_slices(z_begin, z_end);
    preprocess(slices);
    VOX_ASSERT(slices.info.dtype == info_.dtype);
    std::memcpy(out, slices.data.data(), static_cast<size_t>(slices.info.bytes()));
  }

  const Unit unit_;
  const Preprocess& preprocess_;
  const std::unique_ptr<VolumeReader> reader_;
  ThreadPool& pool_;
  const int64_t depth_;
  const bool rewrites_;
  std::vector<Moments> seen_;  // one for each pass
  VolumeInfo info_;            // preprocessed
  std::optional<MovingSlices> slices_;
};

std::function<Block(const Box3&)> mask_in_slabs(const Unit& unit, int64_t window_z, ThreadPool& pool) {
  const std::shared_ptr<const VolumeReader> reader = open_volume(unit.name);
  const auto read = [reader, &pool, extent = unit.raw.extent](int64_t z_begin, int64_t z_end, std::byte* out) {
    reader->read({{z_begin, 0, 0}, {z_end, extent.y, extent.x}}, 0, out, &pool);
  };
  const auto slices = std::make_shared<MovingSlices>(unit.raw, window_z, read);
  return [slices](const Box3& box) { return slices->fetch(box); };
}

}  // namespace

bool can_read_in_slabs(const CaseUnits& units, const Preprocess& preprocess) {
  const auto keeps_its_grid = [](const Unit& unit) {
    return unit.turn == Reorientation{} && unit.stored.extent == unit.raw.extent;
  };
  if (units.mask && !keeps_its_grid(*units.mask)) return false;
  return std::all_of(units.images.begin(), units.images.end(), [&](const Unit& unit) {
    return keeps_its_grid(unit) && preprocess.works_on_slices(unit.image_channel);
  });
}

int64_t slab_input_bytes(const CaseUnits& units, const Preprocess& preprocess, int64_t window_z) {
  int64_t bytes = 0, passing = 0;
  for (const Unit& unit : units.images) {
    const int64_t voxels = std::min(window_z, unit.raw.extent.z) * unit.raw.extent.y * unit.raw.extent.x;
    const int64_t raw = voxels * size_of(unit.raw.dtype), stored = voxels * size_of(unit.stored.dtype);
    bytes += stored;
    if (preprocess.rewrites_voxels(Role::kImage, unit.image_channel)) passing = std::max(passing, raw + stored);
  }
  if (units.mask) {
    const VolumeInfo& mask = units.mask->raw;
    bytes += std::min(window_z, mask.extent.z) * mask.extent.y * mask.extent.x * size_of(mask.dtype);
  }
  return bytes + passing;
}

CaseInput input_in_slabs(const CaseUnits& units, const Case& item, const Preprocess& preprocess, int64_t window_z,
                         ThreadPool& pool) {
  preprocess.require_known_statistics(static_cast<int64_t>(units.images.size()));
  const auto slabs = std::make_shared<std::vector<std::unique_ptr<ChannelSlab>>>();
  for (const Unit& unit : units.images)
    slabs->push_back(std::make_unique<ChannelSlab>(unit, preprocess, window_z, pool));
  const Extent3 extent = units.images.front().raw.extent;
  CaseInput input{item.id, extent, static_cast<int64_t>(units.images.size()), {}, {}};
  input.image = [slabs](int64_t channel, const Box3& box) {
    return (*slabs)[static_cast<size_t>(channel)]->fetch(box);
  };
  if (units.mask) input.mask = mask_in_slabs(*units.mask, window_z, pool);
  return input;
}

}  // namespace vox
