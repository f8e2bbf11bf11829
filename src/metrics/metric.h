// The registry of tasks that `voxloom evaluate` knows: one file and one line in metrics.list each. A metric reads its
// volumes through VolumeSource, so that it decides itself how much of them is in memory at once.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/volume.h"

namespace vox {

class ThreadPool;

struct VolumeSource {
  std::string name;  // for messages
  VolumeInfo info;
  std::function<void(const Box3& box, std::byte* out)> read;  // channel 0, in info.dtype; any thread, at once
  std::vector<VolumeSource> parts{};  // other volumes of the same case, by name: the structures of a patient
};
VolumeSource source_of(const Volume& volume, const std::string& name);  // the volume must outlive it

struct Scores {
  std::map<std::string, double> values;
  std::map<std::string, std::map<std::string, double>> classes;  // label (see MetricEntry::group) -> values
};

struct MetricOptions {
  std::optional<int64_t> ignore_label;
};

struct ScoreInfo {
  std::string name, help;
  enum class Better { kHigher, kLower } better = Better::kHigher;
};

struct MetricEntry {
  std::string name, help;  // the name of the task
  std::vector<ScoreInfo> scores;
  Scores (*evaluate)(const VolumeSource& prediction, const VolumeSource& reference, const MetricOptions& options,
                     ThreadPool& pool);
  Scores (*mean)(const std::vector<Scores>& cases);
  std::string group = "classes";  // what Scores::classes are, as the JSON document names them
};

const std::vector<MetricEntry>& all_metrics();
const MetricEntry& find_metric(const std::string& task);  // Error lists the known ones
Scores mean_of_cases(const std::vector<Scores>& cases);   // of each value; of a class over the cases that have it

}  // namespace vox
