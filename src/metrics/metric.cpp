#include "metrics/metric.h"

#include <cstring>

#include "base/error.h"

namespace vox {

#define VOX_METRIC(name) MetricEntry name##_metric();
#include "metrics/metrics.list"
#undef VOX_METRIC

const std::vector<MetricEntry>& all_metrics() {
#define VOX_METRIC(name) name##_metric(),
  static const std::vector<MetricEntry> entries{
#include "metrics/metrics.list"
  };
#undef VOX_METRIC
  return entries;
}

const MetricEntry& find_metric(const std::string& task) {
  std::string known;
  for (const MetricEntry& entry : all_metrics()) {
    if (entry.name == task) return entry;
    known += " " + entry.name;
  }
  throw Error(concat("this build does not know the task \"", task, "\" yet; known:", known, "."));
}

VolumeSource source_of(const Volume& volume, const std::string& name) {
  const auto read = [&volume](const Box3& box, std::byte* out) {
    const Extent3 extent = volume.info.extent, size = box.extent();
    const int64_t voxel = size_of(volume.info.dtype);
    for (int64_t z = box.begin.z; z < box.end.z; ++z) {
      for (int64_t y = box.begin.y; y < box.end.y; ++y) {
        const int64_t from = (z * extent.y + y) * extent.x + box.begin.x;
        std::memcpy(out, volume.data.data() + from * voxel, static_cast<size_t>(size.x * voxel));
        out += size.x * voxel;
      }
    }
  };
  return {name, volume.info, read};
}

namespace {

void add_values(std::map<std::string, double>& sums, const std::map<std::string, double>& values) {
  for (const auto& [name, value] : values) sums[name] += value;
}

void divide(std::map<std::string, double>& sums, double count) {
  for (auto& [name, sum] : sums) sum /= count;
}

}  // namespace

Scores mean_of_cases(const std::vector<Scores>& cases) {
  Scores mean;
  if (cases.empty()) return mean;
  std::map<std::string, double> cases_with_class;
  for (const Scores& scores : cases) {
    add_values(mean.values, scores.values);
    for (const auto& [label, values] : scores.classes) {
      add_values(mean.classes[label], values);
      ++cases_with_class[label];
    }
  }
  divide(mean.values, static_cast<double>(cases.size()));
  for (auto& [label, values] : mean.classes) divide(values, cases_with_class[label]);
  return mean;
}

}  // namespace vox
