#include "plan/fingerprint.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <numeric>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "io/format.h"
#include "io/orientation.h"
#include "volume/preprocess.h"
#include "volume/scan.h"

namespace vox {
namespace {

constexpr int64_t kSamples = 10000;  // foreground voxels of a case whose intensities are taken
constexpr int64_t kSlabBytes = int64_t{16} << 20;

// In the axes that image and label share: places of the one are looked up in the other.
void visit_turned(const Unit& unit, const Loader::Slab& slab) {
  Volume volume = allocate_volume(unit.raw);
  open_volume(unit.name)->read(whole(unit.raw.extent), unit.channel, volume.data.data());
  volume = apply(volume, unit.turn);
  slab(0, volume.info.extent.z, volume.info, volume.data.data());
}

void visit_slabs(const Unit& unit, const Loader::Slab& slab) {
  if (unit.turn != Reorientation{}) return visit_turned(unit, slab);
  const auto reader = open_volume(unit.name);
  const Extent3 extent = unit.raw.extent;
  const int64_t slice = extent.y * extent.x * size_of(unit.raw.dtype);
  const int64_t thin = std::max<int64_t>({1, kSlabBytes / slice, unit.raw.chunk.z});
  const int64_t depth = unit.in_slabs ? std::min(thin, extent.z) : extent.z;
  Buffer buffer(depth * slice);
  for (int64_t z = 0; z < extent.z; z += depth) {
    const int64_t end = std::min(z + depth, extent.z);
    reader->read({{z, 0, 0}, {end, extent.y, extent.x}}, unit.channel, buffer.data());
    slab(z, end, unit.raw, buffer.data());
  }
}

// kSamples places, spread evenly over the foreground (each label by its share); none where nothing is labelled.
std::vector<int64_t> sample_places(const CaseScan& scan, int64_t ignore) {
  std::vector<int64_t> places;
  int64_t total = 0;
  for (const auto& [value, count] : scan.facts.label_counts)
    if (value != 0 && value != ignore) total += count;
  for (const auto& [value, count] : scan.facts.label_counts) {
    if (value == 0 || value == ignore) continue;
    const std::vector<int64_t>& kept = scan.foreground.at(value);
    const auto wanted = static_cast<int64_t>(
        std::llround(static_cast<double>(count) / static_cast<double>(total) * static_cast<double>(kSamples)));
    const auto size = static_cast<int64_t>(kept.size());
    for (int64_t i = 0; i < wanted; ++i) places.push_back(kept[static_cast<size_t>(i * size / wanted)]);
  }
  std::sort(places.begin(), places.end());
  return places;
}

// Grows `box` to hold every voxel of the slab that is not zero.
template <class T>
void grow(Box3& box, const T* voxels, int64_t z_begin, int64_t z_end, const VolumeInfo& info) {
  const double zero = stored_zero(info);
  const auto is_zero = [&](T value) { return static_cast<double>(value) == zero; };
  const Extent3 extent = info.extent;
  for (int64_t z = z_begin; z < z_end; ++z)
    for (int64_t y = 0; y < extent.y; ++y) {
      const T* row = voxels + ((z - z_begin) * extent.y + y) * extent.x;
      const T* first = std::find_if_not(row, row + extent.x, is_zero);
      if (first == row + extent.x) continue;
      const T* last = row + extent.x - 1;
      while (is_zero(*last)) --last;
      box.begin = min(box.begin, {z, y, first - row});
      box.end = max(box.end, {z + 1, y + 1, last - row + 1});
    }
}

struct Measured {
  CasePrint print;
  std::vector<std::vector<double>> samples;  // of each channel
};

void read_values(const Unit& unit, const std::vector<int64_t>& places, Box3& box, std::vector<double>& samples) {
  size_t next = 0;
  visit_slabs(unit, [&](int64_t z_begin, int64_t z_end, const VolumeInfo& info, const std::byte* data) {
    const int64_t slice = info.extent.y * info.extent.x;
    with_type(info.dtype, [&](auto tag) {
      const auto* voxels = reinterpret_cast<const decltype(tag)*>(data);
      grow(box, voxels, z_begin, z_end, info);
      for (; next < places.size() && places[next] < z_end * slice; ++next)
        samples.push_back(static_cast<double>(voxels[places[next] - z_begin * slice]) * info.scale + info.offset);
    });
  });
}

bool alike(const Spacing3& a, const Spacing3& b) {  // to one in a thousand
  for (int axis = 0; axis < 3; ++axis)
    if (std::abs(a[axis] - b[axis]) > 1e-3 * std::abs(a[axis])) return false;
  return true;
}

// Resampling would take channels and label of a case apart.
void require_one_spacing(const CaseUnits& units) {
  const Unit& first = units.images.front();
  const auto check = [&](const Unit& other) {
    const bool both = first.stored.spacing && other.stored.spacing;
    VOX_CHECK(!both || alike(*first.stored.spacing, *other.stored.spacing), "the ", name_of(other.role), " ",
              other.name, " has a spacing of ", *other.stored.spacing, " mm but the image ", first.name, " of ",
              *first.stored.spacing, " mm; they are one grid, so one of the headers must be wrong");
  };
  for (const Unit& image : units.images) check(image);
  if (units.label) check(*units.label);
  if (units.mask) check(*units.mask);
}

void require_named_labels(const CaseScan& scan, const CaseUnits& units, const Layout& layout) {
  if (layout.label_values.empty()) return;
  for (const auto& [value, count] : scan.facts.label_counts)
    VOX_CHECK(layout.label_values.contains(value), "the label ", units.label->name, " has the value ", value, " (",
              count, " voxels), which ", layout.description,
              " does not name; correct the label, or name the value there");
}

std::optional<Affine> affine_of(const std::string& name, const Case& item) {
  try {
    return open_volume(name)->info().affine;
  } catch (const std::exception& error) {
    throw with_context("case " + item.id, error);
  }
}

// Two volumes that point different ways; empty where all that say it point the same way.
std::string different_ways(const std::vector<Case>& cases) {
  std::string first_codes, first_name;
  for (const Case& item : cases) {
    std::vector<std::string> names = item.images;
    if (!item.label.empty()) names.push_back(item.label);
    for (const std::string& name : names) {
      const std::optional<Affine> affine = affine_of(name, item);
      if (!affine && name == names.front()) break;  // nothing is turned but what the first image turns
      if (!affine) continue;
      const std::string codes = axis_codes(*affine);
      if (first_codes.empty()) first_codes = codes, first_name = name;
      if (codes != first_codes)
        return concat(fs::path(first_name).filename().string(), " is ", first_codes, ", ",
                      fs::path(name).filename().string(), " of case ", item.id, " is ", codes);
    }
  }
  return "";
}

Measured measure_case(const Case& item, const DataOptions& data, const Layout& layout) {
  const CaseUnits units = open_case(item, data, Preprocess(data));
  require_one_spacing(units);
  const CaseScan scan = scan_case(units, data, visit_slabs);
  require_named_labels(scan, units, layout);
  const Unit& first = units.images.front();
  Measured measured;
  CasePrint& print = measured.print;
  print.id = item.id;
  print.extent = first.stored.extent;
  print.spacing = first.stored.spacing.value_or(Spacing3{});
  for (int axis = 0; axis < 3; ++axis)
    VOX_CHECK(print.spacing[axis] > 0 && std::isfinite(print.spacing[axis]), first.name, ": the spacing ",
              print.spacing, " mm is not positive; correct the header");
  print.mean = scan.facts.channel_mean;
  print.deviation = scan.facts.channel_std;
  print.minimum = scan.facts.channel_min;
  print.maximum = scan.facts.channel_max;
  print.label_counts = scan.facts.label_counts;
  for (const Unit& image : units.images) print.images.push_back(image.stored);
  if (units.label) print.others.push_back(units.label->stored);
  if (units.mask) print.others.push_back(units.mask->stored);
  const auto says_it = [](const VolumeInfo& info) { return info.spacing.has_value(); };
  print.has_spacing = std::all_of(print.images.begin(), print.images.end(), says_it) &&
                      std::all_of(print.others.begin(), print.others.end(), says_it);
  if (data.target == "regression") {
    print.nonzero = print.extent;
    return measured;
  }
  const std::vector<int64_t> places = sample_places(scan, data.ignore_label);
  Box3 box{first.stored.extent, {0, 0, 0}};
  measured.samples.resize(units.images.size());
  for (size_t channel = 0; channel < units.images.size(); ++channel)
    read_values(units.images[channel], places, box, measured.samples[channel]);
  print.nonzero = box.empty() ? print.extent : box.extent();
  return measured;
}

Intensities intensities_of(std::vector<double> values) {
  Intensities result;
  if (values.empty()) return result;
  const auto count = static_cast<double>(values.size());
  result.mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (const double value : values) squares += (value - result.mean) * (value - result.mean);
  result.deviation = std::sqrt(squares / count);
  result.low = percentile(values, 0.5);
  result.high = percentile(std::move(values), 99.5);
  return result;
}

void require_equal_channels(const std::vector<Measured>& cases) {
  for (const Measured& item : cases)
    VOX_CHECK(item.print.mean.size() == cases.front().print.mean.size(), "case ", item.print.id, " has ",
              item.print.mean.size(), " channels but case ", cases.front().print.id, " has ",
              cases.front().print.mean.size(), "; all cases must have the same");
}

Fingerprint summary_of(std::vector<Measured> cases, const DataOptions& data) {
  Fingerprint result;
  result.channels = static_cast<int64_t>(cases.front().print.mean.size());
  std::vector<std::vector<double>> samples(static_cast<size_t>(result.channels));
  std::vector<double> shares;
  for (Measured& item : cases) {
    result.voxels += item.print.extent.voxels();
    for (const auto& [value, count] : item.print.label_counts)
      (value == data.ignore_label ? result.ignored_voxels : result.labels[value]) += count;
    for (size_t channel = 0; channel < item.samples.size(); ++channel)
      samples[channel].insert(samples[channel].end(), item.samples[channel].begin(), item.samples[channel].end());
    shares.push_back(static_cast<double>(item.print.nonzero.voxels()) /
                     static_cast<double>(item.print.extent.voxels()));
    result.cases.push_back(std::move(item.print));
  }
  const bool classes = data.target != "regression" && data.ignore_label != 0;
  if (classes) result.labels.try_emplace(0, 0);
  result.relative_size = percentile(std::move(shares), 50);
  for (std::vector<double>& values : samples) result.foreground.push_back(intensities_of(std::move(values)));
  return result;
}

}  // namespace

std::vector<CaseShape> Fingerprint::shapes() const {
  std::vector<CaseShape> result;
  for (const CasePrint& print : cases) result.push_back({print.nonzero, print.spacing});
  return result;
}

bool Fingerprint::one_spacing() const {
  const Spacing3 first = cases.front().spacing;
  return std::all_of(cases.begin(), cases.end(), [&](const CasePrint& print) { return alike(first, print.spacing); });
}

bool Fingerprint::all_have_spacing() const {
  return std::all_of(cases.begin(), cases.end(), [](const CasePrint& print) { return print.has_spacing; });
}

Fingerprint measure(const Layout& layout, ThreadPool& pool, const std::function<void(int64_t)>& progress) {
  std::vector<Measured> cases(layout.cases.size());
  std::mutex reporting;
  int64_t done = 0;
  DataOptions data = layout.data;
  const std::string turned = data.target == "regression" ? "" : different_ways(layout.cases);
  if (!turned.empty()) data.orientation = "RAS";
  pool.for_each(static_cast<int64_t>(cases.size()), [&](int64_t i) {
    const Case& item = layout.cases[static_cast<size_t>(i)];
    try {
      cases[static_cast<size_t>(i)] = measure_case(item, data, layout);
    } catch (const std::exception& error) {
      throw with_context("case " + item.id, error);
    }
    const std::lock_guard lock(reporting);
    if (progress) progress(++done);
  });
  require_equal_channels(cases);
  Fingerprint result = summary_of(std::move(cases), data);
  result.turned = turned;
  const bool classes = layout.data.target == "segmentation";
  const bool any =
      std::any_of(result.labels.begin(), result.labels.end(), [](const auto& item) { return item.first != 0; });
  VOX_CHECK(!classes || any, layout.data.root, ": no label has a voxel above 0; there is nothing to learn");
  return result;
}

}  // namespace vox
