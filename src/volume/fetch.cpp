// Blocks for patches: a view into a whole volume in memory, or a box read from a file into a recycled buffer.
#include <algorithm>

#include "base/error.h"
#include "base/span.h"
#include "volume/store_impl.h"

namespace vox {
namespace {

constexpr int64_t kWidestRow = 512;  // voxels; up to this, whole rows are read from a plain file: fewer, longer reads

constexpr int64_t kBlocksInFlight = int64_t{256} << 20;  // bytes that volumes leave free for them

// Inside the volume, at least one voxel: padding by the edge looks at the nearest one.
Box3 clipped(const Box3& box, const Extent3& extent) {
  Box3 inside;
  for (int axis = 0; axis < 3; ++axis) {
    inside.begin[axis] = std::clamp<int64_t>(box.begin[axis], 0, extent[axis] - 1);
    inside.end[axis] = std::clamp<int64_t>(box.end[axis], inside.begin[axis] + 1, extent[axis]);
  }
  return inside;
}

Block whole_block(const SharedVolume& held) {
  return {view_of(held->volume), held};
}

Block dense_block(const VolumeInfo& info, const Box3& box, std::shared_ptr<std::byte> buffer) {
  VolumeView view{.data = buffer.get(),
                  .dtype = info.dtype,
                  .box = box,
                  .extent = info.extent,
                  .stride_z = box.extent().y * box.extent().x,
                  .stride_y = box.extent().x,
                  .scale = info.scale,
                  .offset = info.offset};
  return {view, std::move(buffer)};
}

int64_t cache_key(const Unit& unit) {
  return static_cast<int64_t>(unit.key);
}

}  // namespace

const Unit& Store::Impl::unit_of(int64_t case_index, Role role, int64_t channel) const {
  const CaseUnits& item = units[static_cast<size_t>(case_index)];
  if (role == Role::kImage) return item.images.at(static_cast<size_t>(channel));
  const std::optional<Unit>& partner = role == Role::kLabel ? item.label : item.mask;
  VOX_CHECK(partner, "case ", dataset.cases[static_cast<size_t>(case_index)].id, " has no ", name_of(role));
  return *partner;
}

// A file of the cache folder that turns out damaged or gone is made again, once.
template <class Result>
Result Store::Impl::with_rebuild(const Unit& unit, const std::function<Result()>& read) {
  const std::shared_ptr<const ChunkFile> before = [&]() -> std::shared_ptr<const ChunkFile> {
    try {
      return shelf.open(unit);
    } catch (const Error&) {
      return nullptr;
    }
  }();
  try {
    if (before) return read();
  } catch (const NotEnoughMemory&) {
    throw;
  } catch (const DamagedChunks&) {
  }
  {
    std::lock_guard lock(rebuilding);
    std::shared_ptr<const ChunkFile> now;
    if (shelf.holds(unit)) now = shelf.open(unit);
    if (now == before) {  // no other thread has rebuilt it meanwhile
      shelf.discard(unit);
      shelf.build(unit, nullptr, {});
    }
  }
  return read();
}

SharedVolume Store::Impl::load_from_chunks(const Unit& unit, Reservation bytes) {
  const std::shared_ptr<const ChunkFile> file = shelf.open(unit);
  VolumeInfo info = unit.stored;
  const VolumeInfo kept = file->info();
  info.dtype = kept.dtype, info.scale = kept.scale, info.offset = kept.offset;
  if (bytes.bytes() < info.bytes()) bytes = budget.reserve(info.bytes(), unit.title());
  bytes.shrink(info.bytes());
  Volume volume = allocate_volume(info);
  const Span span("read");
  block_bytes += file->read(whole(info.extent), volume.data.data());
  return std::make_shared<HeldVolume>(HeldVolume{std::move(volume), std::move(bytes)});
}

// In memory mode: from the file, or, where preprocessing took time and was kept, from the cache folder.
SharedVolume Store::Impl::load_volume(const Unit& unit, ThreadPool* pool) {
  const bool kept =
      unit.changed && data.cache_preprocessed && preprocess.rewrites_voxels(unit.role, unit.image_channel);
  if (!kept) return loader.load(unit, pool);
  if (shelf.holds(unit)) {
    try {
      return load_from_chunks(unit, {});
    } catch (const DamagedChunks&) {
      shelf.discard(unit);
    }
  }
  const SharedVolume held = loader.load(unit, pool);
  try {
    shelf.write(unit, held->volume);
  } catch (const Error&) {  // a folder that cannot be written costs the next start time, and this one nothing
  }
  return held;
}

SharedVolume Store::Impl::whole_volume(const Unit& unit, ThreadPool* pool) {
  return cache.get(cache_key(unit), [&] { return load_volume(unit, pool); });
}

// Where memory is left, a volume that is asked for moves in whole. None is driven out for it: under random access the
// newcomer is asked for no more often than the one it would replace.
SharedVolume Store::Impl::promote(const Unit& unit) {
  const int64_t headroom = std::max(std::min(budget.limit() / 2, kBlocksInFlight), 2 * buffers.bytes());
  Reservation bytes = budget.try_reserve(unit.stored.bytes(), headroom);
  if (bytes.bytes() == 0) return nullptr;
  return cache.get(cache_key(unit), [&]() -> SharedVolume {
    if (!unit.direct) return with_rebuild<SharedVolume>(unit, [&] { return load_from_chunks(unit, std::move(bytes)); });
    bytes.shrink(0);  // the loader reserves its own
    return loader.load(unit, nullptr);
  });
}

Block Store::Impl::chunk_block(const Unit& unit, const Box3& box) {
  const std::shared_ptr<const ChunkFile> file = shelf.open(unit);
  const VolumeInfo info = file->info();
  if (!file->dense()) {
    std::shared_ptr<std::byte> buffer = buffers.acquire(box.voxels() * size_of(info.dtype), unit.title());
    block_bytes += file->read(box, buffer.get());
    return dense_block(info, box, std::move(buffer));
  }
  struct Owner {
    Reservation bytes;
    MappedBox mapped;  // goes first: its pages are free before others may take their place
  };
  auto owner = std::make_shared<Owner>();
  owner->bytes = budget.reserve(file->mapped_bytes(box), unit.title());
  owner->mapped = file->map(box);
  block_bytes += owner->mapped.bytes;
  VolumeView view{.data = owner->mapped.data,
                  .dtype = info.dtype,
                  .box = owner->mapped.box,
                  .extent = info.extent,
                  .stride_z = info.extent.y * info.extent.x,
                  .stride_y = info.extent.x,
                  .scale = info.scale,
                  .offset = info.offset};
  return {view, std::move(owner)};
}

Block Store::Impl::read_block(const Unit& unit, const Box3& box) {
  const Span span("read");
  if (!unit.direct) return with_rebuild<Block>(unit, [&] { return chunk_block(unit, box); });
  const std::shared_ptr<const VolumeReader> reader =
      readers.get(unit.key, [&] { return std::shared_ptr<const VolumeReader>(open_volume(unit.name)); });
  Box3 wide = box;
  if (unit.raw.extent.x <= kWidestRow) wide.begin.x = 0, wide.end.x = unit.raw.extent.x;
  const int64_t bytes = wide.voxels() * size_of(unit.raw.dtype);
  std::shared_ptr<std::byte> buffer = buffers.acquire(bytes, unit.title());
  reader->read(wide, unit.channel, buffer.get());
  block_bytes += bytes;
  return dense_block(unit.raw, wide, std::move(buffer));
}

Block Store::Impl::fetch(const Unit& unit, const Box3& box) {
  if (const SharedVolume held = cache.find(cache_key(unit))) {
    ++hits;
    return whole_block(held);
  }
  ++misses;
  if (in_memory) return whole_block(whole_volume(unit, nullptr));
  if (const SharedVolume held = promote(unit)) return whole_block(held);
  return read_block(unit, clipped(box, unit.stored.extent));
}

Block Store::fetch(int64_t case_index, Role role, int64_t channel, const Box3& box) {
  Block block = impl_->fetch(impl_->unit_of(case_index, role, channel), box);
  if (role == Role::kImage && !impl_->dataset_zscore.empty()) {
    const ChannelMap& map = impl_->dataset_zscore[static_cast<size_t>(channel)];
    block.view.scale *= map.factor;
    block.view.offset = block.view.offset * map.factor + map.shift;
  }
  return block;
}

int64_t Store::stored_bytes(int64_t case_index) const {
  const CaseUnits& item = impl_->units[static_cast<size_t>(case_index)];
  int64_t bytes = 0;
  for (const Unit& image : item.images) bytes += image.stored.bytes();
  if (item.label) bytes += item.label->stored.bytes();
  if (item.mask) bytes += item.mask->stored.bytes();
  return bytes;
}

StoreCounts Store::counts() const {
  const LoadCounts& loads = impl_->loader.counts();
  StoreCounts counts;
  counts.hits = impl_->hits;
  counts.misses = impl_->misses;
  counts.volumes_decoded = loads.volumes;
  counts.bytes_read = loads.bytes + impl_->block_bytes;
  counts.resident_bytes = impl_->budget.used();
  counts.resident_peak = impl_->budget.peak();
  counts.decode_s = static_cast<double>(loads.decode_ns) * 1e-9;
  counts.preprocess_s = static_cast<double>(loads.preprocess_ns) * 1e-9;
  counts.wait_s = impl_->budget.waited_s() + impl_->cache.waited_s();
  for (const Unit* unit : impl_->all_units()) counts.volume_bytes += unit->stored.bytes();
  counts.in_memory = impl_->in_memory;
  return counts;
}

}  // namespace vox
