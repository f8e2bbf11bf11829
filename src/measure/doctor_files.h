// Files of /proc and /sys, read under the root of a MachineView.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "measure/doctor.h"

namespace vox {

std::optional<std::string> read_text(const MachineView& machine, const std::string& path);
std::vector<std::string> read_lines(const MachineView& machine, const std::string& path);
bool exists(const MachineView& machine, const std::string& path);

struct Bound {  // the tightest over this process's cgroup and those above it
  double value = 0;
  std::string file;  // that says so
};
std::optional<Bound> cgroup_memory(const MachineView& machine);  // bytes; v2, else v1
std::optional<Bound> cgroup_cpus(const MachineView& machine);    // CPUs' worth of time
std::optional<Bound> cgroup_counter(const MachineView& machine, const std::string& file, const std::string& word);

struct CpuCounts {
  int present = 1;   // processors of /proc/cpuinfo
  int allowed = 1;   // by affinity
  double quota = 0;  // 0: none
  std::string quota_file;
  int usable() const;
};
CpuCounts count_cpus(const MachineView& machine);

struct MemoryCounts {  // bytes
  int64_t total = 0, available = 0;
  std::optional<Bound> limit;
  int64_t usable() const;  // the smaller of what there is and what the container allows
};
MemoryCounts count_memory(const MachineView& machine);
// What this process could take beside what it has: of the machine's free memory, and of what the container leaves it.
int64_t spare_memory(const MachineView& machine);

struct Mount {
  std::string point, type, source, options;
};
Mount mount_of(const MachineView& machine, const fs::path& path);  // empty where no mount is known
bool is_network(const Mount& mount);

}  // namespace vox
