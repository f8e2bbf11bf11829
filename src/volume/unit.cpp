#include "volume/unit.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "io/format.h"
#include "io/orientation.h"
#include "io/slabs.h"
#include "volume/glob.h"

namespace vox {
namespace {

constexpr uint64_t kCacheVersion = 2;  // of whatever is derived from a file and kept

uint64_t content_key(const Unit& unit, const DataOptions& data, const Preprocess& preprocess) {
  const fs::path file = file_of_volume(unit.name);
  ContentHash hash;
  hash.add(kCacheVersion).add(fs::absolute(file).lexically_normal().string()).add(unit.name);
  hash.add(static_cast<uint64_t>(fs::is_directory(file) ? 0 : fs::file_size(file)));
  hash.add(static_cast<uint64_t>(fs::last_write_time(file).time_since_epoch().count()));
  hash.add(static_cast<uint64_t>(unit.channel)).add(static_cast<uint64_t>(unit.role));
  return hash.add(data.orientation).add(data.target).add(preprocess.description(unit.role, unit.image_channel)).value();
}

void plan_unit(Unit& unit, const DataOptions& data, const Preprocess& preprocess) {
  VolumeInfo info = unit.raw;
  unit.peak_bytes = info.bytes();
  if (data.orientation == "RAS" && info.affine && !(to_ras(*info.affine) == Reorientation{})) {
    info = apply(info, to_ras(*info.affine));
    unit.changed = true;
    unit.peak_bytes = 2 * info.bytes();
  }
  unit.stored = preprocess.plan(info, unit.role, unit.image_channel);
  const int64_t preprocessing = preprocess.peak_bytes(info, unit.role, unit.image_channel);
  unit.peak_bytes = std::max({unit.peak_bytes, preprocessing, unit.stored.bytes()});
  unit.changed |= preprocess.any(unit.role, unit.image_channel);
  unit.in_slabs = !unit.changed && comes_in_slabs(unit.raw);
  unit.direct = !unit.changed && unit.raw.codec == "none";
  unit.key = content_key(unit, data, preprocess);
}

std::vector<Unit> open_units(const Case& item, const std::string& name, Role role, int64_t first_channel,
                             const DataOptions& data, const Preprocess& preprocess) {
  const VolumeInfo info = open_volume(name)->info();
  VOX_CHECK(info.voxels() > 0, name, ": the volume is empty (", info.extent, ")");
  std::vector<Unit> units;
  for (int64_t channel = 0; channel < info.channels; ++channel) {
    Unit unit;
    unit.case_id = item.id;
    unit.name = name;
    unit.channel = channel;
    unit.image_channel = first_channel + channel;
    unit.role = role;
    unit.raw = info;
    unit.raw.channels = 1;
    plan_unit(unit, data, preprocess);
    units.push_back(std::move(unit));
  }
  return units;
}

std::optional<Unit> open_partner(const Case& item, const std::string& name, Role role, const DataOptions& data,
                                 const Preprocess& preprocess) {
  if (name.empty()) return std::nullopt;
  std::vector<Unit> units = open_units(item, name, role, 0, data, preprocess);
  VOX_CHECK(units.size() == 1, "the ", name_of(role), " ", name, " has ", units.size(), " channels; expected one");
  return units.front();
}

void require_same_extent(const Unit& image, const Unit& other) {
  VOX_CHECK(image.stored.extent == other.stored.extent && image.raw.voxels() == other.raw.voxels(), "the ",
            name_of(other.role), " ", other.name, " is ", other.raw.extent, " but the image ", image.name, " is ",
            image.raw.extent, "; was one of them resampled or cropped?");
}

}  // namespace

const char* name_of(Role role) {
  return role == Role::kImage ? "image" : role == Role::kLabel ? "label" : "mask";
}

std::string Unit::title() const {
  return concat("case ", case_id, ": the ", name_of(role), " ", name);
}

CaseUnits open_case(const Case& item, const DataOptions& data, const Preprocess& preprocess) {
  CaseUnits units;
  for (const std::string& name : item.images) {
    const auto first_channel = static_cast<int64_t>(units.images.size());
    for (Unit& unit : open_units(item, name, Role::kImage, first_channel, data, preprocess))
      units.images.push_back(std::move(unit));
  }
  preprocess.require_channels(static_cast<int64_t>(units.images.size()));
  units.label = open_partner(item, item.label, Role::kLabel, data, preprocess);
  units.mask = open_partner(item, item.mask, Role::kMask, data, preprocess);
  const Unit& first = units.images.front();
  for (const Unit& image : units.images) require_same_extent(first, image);
  if (units.label) require_same_extent(first, *units.label);
  if (units.mask) require_same_extent(first, *units.mask);
  if (first.raw.affine) units.orientation = axis_codes(*first.raw.affine);
  return units;
}

}  // namespace vox
