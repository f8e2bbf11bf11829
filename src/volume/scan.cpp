#include "volume/scan.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "volume/foreground.h"

namespace vox {
namespace {

Moments scan_values(const Unit& unit, const VisitSlabs& visit) {
  Moments moments;
  VolumeInfo seen;
  visit(unit, [&](int64_t z_begin, int64_t z_end, const VolumeInfo& info, const std::byte* voxels) {
    const int64_t slice = info.extent.y * info.extent.x;
    moments.merge(moments_of(voxels, info.dtype, (z_end - z_begin) * slice), z_begin * slice);
    seen = info;
  });
  require_finite(moments, unit, seen.extent);
  return moments.mapped(seen.scale, seen.offset);
}

void scan_label(const Unit& unit, const VisitSlabs& visit, CaseScan& scan) {
  LabelScan labels;
  visit(unit, [&](int64_t z_begin, int64_t z_end, const VolumeInfo& info, const std::byte* voxels) {
    const int64_t voxel_count = (z_end - z_begin) * info.extent.y * info.extent.x;
    labels.add(voxels, info.dtype, voxel_count, info.scale, info.offset);
  });
  VOX_CHECK(labels.bad_count() == 0, "the label ", unit.name, " has the value ", shortest(labels.first_bad_value()),
            " (", labels.bad_count(),
            " such voxels); a class must be a whole number from 0 to 255. Renumber the "
            "classes, or set data.target: regression for values to predict");
  scan.facts.label_counts = labels.counts();
  scan.foreground = labels.take_foreground();
}

}  // namespace

CaseScan scan_case(const CaseUnits& units, const DataOptions& data, const VisitSlabs& visit) {
  const VolumeInfo& info = units.images.front().stored;
  CaseScan scan;
  scan.facts.extent = info.extent;
  scan.facts.channels = static_cast<int64_t>(units.images.size());
  scan.facts.spacing = info.spacing.value_or(Spacing3{});
  for (const Unit& image : units.images) scan.moments.push_back(scan_values(image, visit));
  if (units.label && data.target == "regression") scan_values(*units.label, visit);
  if (units.label && data.target != "regression") scan_label(*units.label, visit, scan);
  set_channel_facts(scan);
  return scan;
}

void require_known_labels(const CaseScan& scan, const CaseUnits& units, const DataOptions& data) {
  if (data.labels.empty() || !units.label || data.target == "regression") return;
  for (const auto& [value, count] : scan.facts.label_counts) {
    if (value == data.ignore_label) continue;
    std::vector<std::string> known;
    for (const int64_t label : data.labels) known.push_back(std::to_string(label));
    VOX_CHECK(std::find(data.labels.begin(), data.labels.end(), value) != data.labels.end(), "the label ",
              units.label->name, " has the unknown value ", value, " (", count, " voxels); data.labels lists ",
              join(known, ", "), ". Add it there, or name it data.ignore_label");
  }
}

}  // namespace vox
