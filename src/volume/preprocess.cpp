#include "volume/preprocess.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/span.h"
#include "base/text.h"
#include "config/params.h"
#include "volume/statistics.h"

namespace vox {

#define VOX_PREPROCESS(name) PreprocessEntry name##_preprocess();
#include "volume/preprocess.list"
#undef VOX_PREPROCESS

const std::vector<PreprocessEntry>& all_preprocess_steps() {
#define VOX_PREPROCESS(name) name##_preprocess(),
  static const std::vector<PreprocessEntry> entries{
#include "volume/preprocess.list"
  };
#undef VOX_PREPROCESS
  return entries;
}

namespace {

const PreprocessEntry& entry_of(const std::string& name) {
  std::vector<std::string> known;
  for (const PreprocessEntry& entry : all_preprocess_steps()) {
    if (entry.name == name) return entry;
    known.push_back(entry.name);
  }
  const std::string close = nearest(name, known);
  throw Error(concat("data.preprocess: there is no step \"", name, "\"; ",
                     close.empty() ? concat("known: ", join(known, ", ")) : concat("did you mean ", close, "?")));
}

std::string text_of(const Tree& tree) {
  std::string text = tree.scalar;
  for (const Tree& item : tree.items) text += "[" + text_of(item) + "]";
  for (const auto& [key, value] : tree.members) text += "{" + key + ":" + text_of(value) + "}";
  return text;
}

struct ChannelOptions {
  std::vector<int64_t> channels;
  void describe(Visitor& v) {
    v.field("channels", channels,
            {.meaning = "Image channels that the step is done to, from 0, over all of data.images; none named: all",
             .min = 0});
  }
};

std::vector<int64_t> take_channels(Tree& params, const std::string& where) {
  Tree own;
  own.kind = Tree::Kind::kMap;
  std::erase_if(params.members, [&](const auto& member) {
    if (member.first != "channels") return false;
    own.members.push_back(member);
    return true;
  });
  return parse_params<ChannelOptions>(own, where).channels;
}

bool is_among(const std::vector<int64_t>& channels, int64_t channel) {
  return channels.empty() || std::find(channels.begin(), channels.end(), channel) != channels.end();
}

}  // namespace

std::vector<OptionRow> options_of_every_step() {
  return rows_of<ChannelOptions>();
}

Preprocess::Preprocess(const DataOptions& data) : regression_(data.target == "regression") {
  for (const PreprocessStep& step : data.preprocess) {
    VOX_CHECK(!zscore_over_dataset_, "data.preprocess: ", step.name,
              " comes after zscore with scope: dataset, which must be the last step");
    const std::string where = "data.preprocess: " + step.name;
    const PreprocessEntry& entry = entry_of(step.name);
    Tree params = step.params;
    const std::vector<int64_t> channels = take_channels(params, where);
    std::unique_ptr<PreprocessMethod> method = entry.make(params, where);
    VOX_CHECK(channels.empty() || !method->for_every_role(), where,
              " is done to every volume of a case, so that they stay of one size; leave out its channels");
    for (const int64_t channel : channels) named_channels_.push_back({where, channel});
    zscore_over_dataset_ = method->over_dataset();
    known_statistics_ = method->known_statistics();
    if (zscore_over_dataset_)
      zscore_channels_ = channels;
    else
      steps_.push_back({step.name + text_of(params), channels, std::move(method)});
  }
}

void Preprocess::require_channels(int64_t image_channels) const {
  for (const auto& [where, channel] : named_channels_)
    VOX_CHECK(channel < image_channels, where, ": channels names ", channel, ", but the case has ", image_channels,
              " image channel(s), counted from 0");
}

void Preprocess::require_known_statistics(int64_t image_channels) const {
  const auto known = static_cast<int64_t>(known_statistics_.size());
  VOX_CHECK(known == 0 || known == image_channels, "data.preprocess: zscore has the mean of ", known,
            " channels and the cases have ", image_channels);
}

std::vector<const Preprocess::Step*> Preprocess::steps_of(Role role, int64_t channel) const {
  std::vector<const Step*> steps;
  for (const Step& step : steps_)
    if (role == Role::kImage ? is_among(step.channels, channel) : step.method->for_every_role()) steps.push_back(&step);
  return steps;
}

bool Preprocess::zscore_over_dataset(int64_t channel) const {
  return zscore_over_dataset_ && is_among(zscore_channels_, channel);
}

VoxelKind Preprocess::kind_of(Role role) const {
  const bool values = role == Role::kImage || (role == Role::kLabel && regression_);
  return values ? VoxelKind::kValues : VoxelKind::kClasses;
}

bool Preprocess::any(Role role, int64_t channel) const {
  return !steps_of(role, channel).empty();
}

bool Preprocess::rewrites_voxels(Role role, int64_t channel) const {
  const auto steps = steps_of(role, channel);
  return std::any_of(steps.begin(), steps.end(), [](const Step* step) { return step->method->rewrites_voxels(); });
}

VolumeInfo Preprocess::plan(VolumeInfo info, Role role, int64_t channel) const {
  for (const Step* step : steps_of(role, channel)) info = step->method->plan(info);
  return info;
}

int64_t Preprocess::peak_bytes(VolumeInfo info, Role role, int64_t channel) const {
  int64_t peak = info.bytes();
  for (const Step* step : steps_of(role, channel)) {
    const VolumeInfo after = step->method->plan(info);
    const int64_t beside = step->method->rewrites_voxels() ? after.bytes() : 0;
    peak = std::max(peak, info.bytes() + beside + step->method->scratch_bytes(info));
    info = after;
  }
  return peak;
}

void Preprocess::apply(Volume& volume, Role role, int64_t channel) const {
  const Span span("preprocess");
  for (const Step* step : steps_of(role, channel)) step->method->apply(volume, kind_of(role));
}

bool Preprocess::works_on_slices(int64_t channel) const {
  const auto steps = steps_of(Role::kImage, channel);
  return (!zscore_over_dataset(channel) || !known_statistics_.empty()) &&
         std::none_of(steps.begin(), steps.end(),
                      [](const Step* step) { return step->method->needs() == StepNeeds::kVolume; });
}

size_t Preprocess::passes(int64_t channel) const {
  const auto steps = steps_of(Role::kImage, channel);
  return static_cast<size_t>(std::count_if(
      steps.begin(), steps.end(), [](const Step* step) { return step->method->needs() == StepNeeds::kMoments; }));
}

void Preprocess::apply_to_slices(Volume& slices, int64_t channel, const std::vector<Moments>& seen) const {
  size_t pass = 0;
  for (const Step* step : steps_of(Role::kImage, channel)) {
    if (step->method->needs() == StepNeeds::kVoxel) {
      step->method->apply(slices, VoxelKind::kValues);
      continue;
    }
    if (pass == seen.size()) return;
    step->method->map_from(slices.info, seen[pass++]);
  }
  if (!zscore_over_dataset(channel)) return;
  const ChannelStatistics& known = known_statistics_.at(static_cast<size_t>(channel));
  map_values(slices.info, 1 / known.deviation, -known.mean / known.deviation);
}

std::string Preprocess::description(Role role, int64_t channel) const {
  std::string text;
  for (const Step* step : steps_of(role, channel)) text += step->text + ";";
  return text;
}

void map_values(VolumeInfo& info, double factor, double shift) {
  info.scale *= factor;
  info.offset = info.offset * factor + shift;
}

// Steps before may have rounded scale and offset.
double stored_zero(const VolumeInfo& info) {
  constexpr double kRounding = 1e-12;
  const double exact = -info.offset / info.scale;
  const double nearest = is_integer(info.dtype) ? std::nearbyint(exact) : double{static_cast<float>(exact)};
  return std::abs(nearest - exact) <= kRounding * std::abs(exact) ? nearest : exact;
}

Volume to_float32(const Volume& volume) {
  VolumeInfo info = volume.info;
  info.dtype = DType::kFloat32;
  info.scale = 1, info.offset = 0;
  Volume out = allocate_volume(info);
  with_type(volume.info.dtype, [&](auto tag) {
    using T = decltype(tag);
    const T* source = volume.as<T>();
    auto* target = out.data.as<float>();
    for (int64_t i = 0; i < info.voxels(); ++i)
      target[i] = static_cast<float>(static_cast<double>(source[i]) * volume.info.scale + volume.info.offset);
  });
  return out;
}

namespace {

struct StoredBounds {
  double low, high;
};

StoredBounds stored_bounds(const VolumeInfo& info, double low, double high) {
  const double a = (low - info.offset) / info.scale, b = (high - info.offset) / info.scale;
  return {std::min(a, b), std::max(a, b)};
}

template <class T>
bool is_stored_value(double bound) {
  if constexpr (std::is_floating_point_v<T>) return true;
  const bool outside = bound < static_cast<double>(std::numeric_limits<T>::lowest()) ||
                       bound > static_cast<double>(std::numeric_limits<T>::max());
  return outside || bound == std::floor(bound);
}

template <class T>
void clip_stored(T* values, int64_t count, const StoredBounds& bounds) {
  const auto lowest = static_cast<double>(std::numeric_limits<T>::lowest());
  const auto highest = static_cast<double>(std::numeric_limits<T>::max());
  const T low = static_cast<T>(std::clamp(bounds.low, lowest, highest));
  const T high = static_cast<T>(std::clamp(bounds.high, lowest, highest));
  for (int64_t i = 0; i < count; ++i) values[i] = std::min(std::max(values[i], low), high);
}

}  // namespace

DType dtype_after_clip(const VolumeInfo& info, double low, double high) {
  const StoredBounds bounds = stored_bounds(info, low, high);
  const bool exact = with_type(info.dtype, [&](auto tag) {
    using T = decltype(tag);
    return is_stored_value<T>(bounds.low) && is_stored_value<T>(bounds.high);
  });
  return exact ? info.dtype : DType::kFloat32;
}

void clip_values(Volume& volume, double low, double high) {
  if (dtype_after_clip(volume.info, low, high) != volume.info.dtype) volume = to_float32(volume);
  const StoredBounds bounds = stored_bounds(volume.info, low, high);
  with_type(volume.info.dtype, [&](auto tag) {
    using T = decltype(tag);
    clip_stored(volume.data.as<T>(), volume.info.voxels(), bounds);
  });
}

}  // namespace vox
