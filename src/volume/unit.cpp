#include "volume/unit.h"

#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "io/format.h"
#include "io/slabs.h"
#include "io/volume_name.h"

namespace vox {
namespace {

constexpr uint64_t kCacheVersion = 4;  // of whatever is derived from a file and kept

uint64_t state_of_file(const fs::path& file) {
  struct stat facts {};
  if (stat(file.c_str(), &facts) != 0) throw_system_error("open", file.string(), errno);
  ContentHash hash;
  hash.add(static_cast<uint64_t>(facts.st_size)).add(static_cast<uint64_t>(facts.st_mtim.tv_sec));
  return hash.add(static_cast<uint64_t>(facts.st_mtim.tv_nsec)).value();
}

// Of all files below: one that is changed in place leaves the date of its folder as it was.
uint64_t state_of_folder(const fs::path& folder) {
  uint64_t sum = 0;  // a folder lists its files in any order
  std::error_code problem, dangling;
  for (fs::recursive_directory_iterator entry(folder, problem), end; !problem && entry != end; entry.increment(problem))
    if (entry->is_regular_file(dangling))
      sum += ContentHash().add(entry->path().string()).add(state_of_file(entry->path())).value();
  if (problem) throw_system_error("open", folder.string(), problem.value());
  return sum;
}

// Of the file or folder it is named by. Of a dataset that is a folder of its own, as in Zarr, what its neighbours hold
// is left out.
uint64_t state_of_volume(const VolumeName& name) {
  if (!fs::is_directory(name.path)) return state_of_file(name.path);
  const fs::path own = fs::path(name.path) / name.dataset;
  return state_of_folder(!name.dataset.empty() && fs::is_directory(own) ? own : fs::path(name.path));
}

uint64_t file_key(const std::string& name, const VolumeReader& reader) {
  const std::optional<VolumeName> parts = existing_volume(name);
  VOX_CHECK(parts, name, ": the file was removed while it was opened");
  ContentHash hash;
  hash.add(kCacheVersion).add(fs::absolute(parts->path).lexically_normal().string()).add(name);
  hash.add(state_of_volume(*parts));
  for (const std::string& file : reader.files())
    if (file != parts->path) hash.add(fs::absolute(file).lexically_normal().string()).add(state_of_file(file));
  const Spacing3 spacing =
      reader.info().spacing.value_or(Spacing3{});  // that of a Zarr array may stand above its folder
  for (int axis = 0; axis < 3; ++axis) hash.add(std::bit_cast<uint64_t>(spacing[axis]));
  return hash.value();
}

uint64_t content_key(const Unit& unit, uint64_t of_file, const DataOptions& data, const Preprocess& preprocess) {
  ContentHash hash;
  hash.add(of_file).add(static_cast<uint64_t>(unit.channel)).add(static_cast<uint64_t>(unit.role));
  for (int axis = 0; axis < 3; ++axis)
    hash.add(static_cast<uint64_t>(unit.turn.axes[axis])).add(uint64_t{unit.turn.flip[axis]});
  return hash.add(data.target).add(preprocess.description(unit.role, unit.image_channel)).value();
}

void plan_unit(Unit& unit, const DataOptions& data, const Preprocess& preprocess) {
  VolumeInfo info = unit.raw;
  unit.peak_bytes = info.bytes();
  if (unit.turn != Reorientation{}) {
    info = apply(info, unit.turn);
    unit.changed = true;
    unit.peak_bytes = 2 * info.bytes();
  }
  unit.stored = preprocess.plan(info, unit.role, unit.image_channel);
  const int64_t preprocessing = preprocess.peak_bytes(info, unit.role, unit.image_channel);
  unit.peak_bytes = std::max({unit.peak_bytes, preprocessing, unit.stored.bytes()});
  unit.changed |= preprocess.any(unit.role, unit.image_channel);
  unit.in_slabs = !unit.changed && comes_in_slabs(unit.raw);
  unit.direct = !unit.changed && unit.raw.codec == "none";
  unit.key = content_key(unit, unit.key, data, preprocess);
}

// As the file has them: what is done to them is planned once the whole case is known.
std::vector<Unit> open_units(const Case& item, const std::string& name, Role role, int64_t first_channel) {
  const std::unique_ptr<VolumeReader> reader = open_volume(name);
  const VolumeInfo& info = reader->info();
  VOX_CHECK(info.voxels() > 0, name, ": the volume is empty (", info.extent, ")");
  const uint64_t key = file_key(name, *reader);
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
    unit.key = key;
    units.push_back(std::move(unit));
  }
  return units;
}

std::optional<Unit> open_partner(const Case& item, const std::string& name, Role role) {
  if (name.empty()) return std::nullopt;
  std::vector<Unit> units = open_units(item, name, role, 0);
  VOX_CHECK(units.size() == 1, "the ", name_of(role), " ", name, " has ", units.size(), " channels; expected one");
  return units.front();
}

void require_same_extent(const Unit& image, const Unit& other) {
  VOX_CHECK(image.stored.extent == other.stored.extent && image.raw.voxels() == other.raw.voxels(), "the ",
            name_of(other.role), " ", other.name, " is ", other.raw.extent, " but the image ", image.name, " is ",
            image.raw.extent, "; was one of them resampled or cropped?");
}

// The files of a case are one grid. Where only some say which way it points, the first image speaks for all.
Reorientation turn_of(const Unit& unit, const Unit& first, const DataOptions& data) {
  const std::optional<Affine>&own = unit.raw.affine, &image = first.raw.affine;
  if (data.orientation != "RAS") {
    VOX_CHECK(!own || !image || axis_codes(*own) == axis_codes(*image), "the ", name_of(unit.role), " ", unit.name,
              " is ", axis_codes(*own), " but the image ", first.name, " is ", axis_codes(*image),
              ": they point different ways; set data.orientation: RAS, or correct the header that is wrong");
    return {};
  }
  if (!own) return image ? to_ras(*image) : Reorientation{};
  VOX_CHECK(image || to_ras(*own) == Reorientation{}, "the ", name_of(unit.role), " ", unit.name, " is ",
            axis_codes(*own), " but the image ", first.name,
            " does not say which way it points, so that data.orientation: RAS would turn one of them alone; set "
            "data.orientation: keep where their voxels lie alike, or use an image that says it");
  return to_ras(*own);
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
    for (Unit& unit : open_units(item, name, Role::kImage, first_channel)) units.images.push_back(std::move(unit));
  }
  preprocess.require_channels(static_cast<int64_t>(units.images.size()));
  units.label = open_partner(item, item.label, Role::kLabel);
  units.mask = open_partner(item, item.mask, Role::kMask);
  const Unit& first = units.images.front();
  const auto plan = [&](Unit& unit) {
    unit.turn = turn_of(unit, first, data);
    plan_unit(unit, data, preprocess);
    require_same_extent(first, unit);
  };
  std::for_each(units.images.begin(), units.images.end(), plan);
  if (units.label) plan(*units.label);
  if (units.mask) plan(*units.mask);
  if (first.raw.affine) units.orientation = axis_codes(*first.raw.affine);
  return units;
}

}  // namespace vox
