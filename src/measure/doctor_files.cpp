#include "measure/doctor_files.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <functional>
#include <sstream>

#include "base/text.h"

namespace vox {
namespace {

fs::path under_root(const MachineView& machine, const std::string& path) {
  return machine.root / path.substr(1);
}

// Where /proc/self/cgroup puts this process for `controller` (v1), or for all of them (v2, controller empty).
std::string cgroup_path(const MachineView& machine, const std::string& controller) {
  for (const std::string& line : read_lines(machine, "/proc/self/cgroup")) {
    const std::vector<std::string> parts = split(line, ':');
    if (parts.size() < 3) continue;
    const std::vector<std::string> controllers = split(parts[1], ',');
    const bool meant = controller.empty()
                           ? parts[0] == "0" && parts[1].empty()
                           : std::find(controllers.begin(), controllers.end(), controller) != controllers.end();
    if (meant) return parts[2] == "/" ? "" : parts[2];
  }
  return "";
}

using ReadBound = std::function<std::optional<double>(const std::string& group)>;

// Every group from this process's own up to the root may bound it. Inside a container the own path may not be mounted;
// the root then is the container's.
std::optional<Bound> tightest(const std::string& base, std::string path, const std::string& file,
                              const ReadBound& read) {
  std::optional<Bound> found;
  while (true) {
    const std::string group = base + path;
    const std::optional<double> value = read(group);
    if (value && (!found || *value < found->value)) found = Bound{*value, group + "/" + file};
    if (path.empty()) return found;
    const size_t cut = path.rfind('/');
    path = cut == std::string::npos ? "" : path.substr(0, cut);
  }
}

std::optional<double> number_in(const MachineView& machine, const std::string& path) {
  const std::optional<std::string> text = read_text(machine, path);
  if (!text) return std::nullopt;
  std::istringstream in(*text);
  double value = 0;
  if (!(in >> value)) return std::nullopt;  // "max"
  return value;
}

std::optional<double> ratio_in(const MachineView& machine, const std::string& path) {  // of cpu.max: "150000 100000"
  const std::optional<std::string> text = read_text(machine, path);
  if (!text) return std::nullopt;
  std::istringstream in(*text);
  double quota = 0, period = 0;
  if (!(in >> quota >> period) || period <= 0) return std::nullopt;
  return quota / period;
}

int count_ranges(const std::string& text) {  // "0-3,8"
  int count = 0;
  for (const std::string& part : split(trim(text), ',')) {
    int first = 0, last = 0;
    const int read = std::sscanf(part.c_str(), "%d-%d", &first, &last);
    if (read >= 1) count += read == 2 ? last - first + 1 : 1;
  }
  return count;
}

std::string unescape(const std::string& text) {  // mountinfo writes a space as \040
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      out += static_cast<char>(std::strtol(text.substr(i + 1, 3).c_str(), nullptr, 8));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::optional<Mount> parse_mount(const std::string& line) {
  const size_t dash = line.find(" - ");
  if (dash == std::string::npos) return std::nullopt;
  const std::vector<std::string> before = split(line.substr(0, dash), ' ');
  const std::vector<std::string> after = split(line.substr(dash + 3), ' ');
  if (before.size() < 5 || after.size() < 2) return std::nullopt;
  return Mount{unescape(before[4]), after[0], unescape(after[1]), after.size() > 2 ? after[2] : ""};
}

bool lies_under(const std::string& path, const std::string& folder) {
  return folder == "/" || path == folder || path.starts_with(folder + "/");
}

}  // namespace

std::optional<std::string> read_text(const MachineView& machine, const std::string& path) {
  std::ifstream file(under_root(machine, path));
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> read_lines(const MachineView& machine, const std::string& path) {
  std::vector<std::string> lines;
  if (const auto text = read_text(machine, path)) {
    std::istringstream in(*text);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
  }
  return lines;
}

bool exists(const MachineView& machine, const std::string& path) {
  std::error_code ignored;
  return fs::exists(under_root(machine, path), ignored);
}

std::optional<Bound> cgroup_memory(const MachineView& machine) {
  const auto v2 = tightest("/sys/fs/cgroup", cgroup_path(machine, ""), "memory.max",
                           [&](const std::string& group) { return number_in(machine, group + "/memory.max"); });
  if (v2) return v2;
  constexpr double kUnlimited = 1e18;  // v1 writes no limit as the largest page-aligned number
  const auto v1 =
      tightest("/sys/fs/cgroup/memory", cgroup_path(machine, "memory"), "memory.limit_in_bytes",
               [&](const std::string& group) { return number_in(machine, group + "/memory.limit_in_bytes"); });
  return v1 && v1->value < kUnlimited ? v1 : std::nullopt;
}

std::optional<Bound> cgroup_cpus(const MachineView& machine) {
  const auto v2 = tightest("/sys/fs/cgroup", cgroup_path(machine, ""), "cpu.max",
                           [&](const std::string& group) { return ratio_in(machine, group + "/cpu.max"); });
  if (v2) return v2;
  const auto read = [&](const std::string& group) -> std::optional<double> {
    const auto quota = number_in(machine, group + "/cpu.cfs_quota_us");
    const auto period = number_in(machine, group + "/cpu.cfs_period_us");
    if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
    return *quota / *period;
  };
  return tightest("/sys/fs/cgroup/cpu", cgroup_path(machine, "cpu"), "cpu.cfs_quota_us", read);
}

std::optional<Bound> cgroup_counter(const MachineView& machine, const std::string& file, const std::string& word) {
  std::string path = cgroup_path(machine, "");
  if (!exists(machine, "/sys/fs/cgroup" + path + "/" + file)) path = "";
  const std::string name = "/sys/fs/cgroup" + path + "/" + file;
  for (const std::string& line : read_lines(machine, name)) {
    std::istringstream in(line);
    std::string key;
    double value = 0;
    if (in >> key >> value && key == word) return Bound{value, name};
  }
  return std::nullopt;
}

int CpuCounts::usable() const {
  const int by_quota = quota > 0 ? static_cast<int>(std::ceil(quota)) : allowed;
  return std::max(1, std::min(allowed, by_quota));
}

CpuCounts count_cpus(const MachineView& machine) {
  CpuCounts counts;
  const std::vector<std::string> lines = read_lines(machine, "/proc/cpuinfo");
  const auto processors =
      std::count_if(lines.begin(), lines.end(), [](const std::string& line) { return line.starts_with("processor"); });
  counts.present = std::max(1, static_cast<int>(processors));
  counts.allowed = counts.present;
  for (const std::string& line : read_lines(machine, "/proc/self/status"))
    if (line.starts_with("Cpus_allowed_list:")) counts.allowed = std::max(1, count_ranges(line.substr(18)));
  if (const auto quota = cgroup_cpus(machine)) {
    counts.quota = quota->value;
    counts.quota_file = quota->file;
  }
  return counts;
}

int64_t MemoryCounts::usable() const {
  return limit ? std::min(total, static_cast<int64_t>(limit->value)) : total;
}

MemoryCounts count_memory(const MachineView& machine) {
  MemoryCounts counts;
  for (const std::string& line : read_lines(machine, "/proc/meminfo")) {
    std::istringstream in(line);
    std::string key;
    int64_t kilobytes = 0;
    if (!(in >> key >> kilobytes)) continue;
    if (key == "MemTotal:") counts.total = kilobytes * 1024;
    if (key == "MemAvailable:") counts.available = kilobytes * 1024;
  }
  counts.limit = cgroup_memory(machine);
  return counts;
}

int64_t spare_memory(const MachineView& machine) {
  const MemoryCounts counts = count_memory(machine);
  if (!counts.limit) return counts.available;
  double resident = 0;  // the container's own count holds files that were read, which give way
  for (const std::string& line : read_lines(machine, "/proc/self/status"))
    if (line.starts_with("VmRSS:")) resident = 1024 * std::strtod(line.c_str() + 6, nullptr);
  return std::clamp<int64_t>(static_cast<int64_t>(counts.limit->value - resident), 0, counts.available);
}

Mount mount_of(const MachineView& machine, const fs::path& path) {
  const std::string wanted = fs::absolute(path).lexically_normal().string();
  Mount found;
  for (const std::string& line : read_lines(machine, "/proc/self/mountinfo")) {
    const std::optional<Mount> mount = parse_mount(line);
    // The last of several at one place hides those before it.
    if (mount && lies_under(wanted, mount->point) && mount->point.size() >= found.point.size()) found = *mount;
  }
  return found;
}

bool is_network(const Mount& mount) {
  static constexpr std::array kTypes{"nfs",   "nfs4",   "cifs",       "smb3",      "smbfs",          "lustre",
                                     "gpfs",  "beegfs", "ceph",       "afs",       "glusterfs",      "9p",
                                     "pvfs2", "wekafs", "fuse.sshfs", "fuse.s3fs", "fuse.glusterfs", "fuse.gcsfuse"};
  return std::find(kTypes.begin(), kTypes.end(), mount.type) != kTypes.end();
}

}  // namespace vox
