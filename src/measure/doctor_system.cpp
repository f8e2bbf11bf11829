// CPUs, memory, limits and libraries, judged from files of /proc and /sys.
#include <algorithm>
#include <sstream>

#include "base/error.h"
#include "base/text.h"
#include "io/build_libraries.h"
#include "measure/doctor.h"
#include "measure/doctor_files.h"

namespace vox {
namespace {

constexpr double kMiB = 1 << 20, kGiB = 1 << 30;

std::optional<double> number_of(const MachineView& machine, const std::string& path) {
  const std::optional<std::string> text = read_text(machine, path);
  if (!text) return std::nullopt;
  std::istringstream in(*text);
  double value = 0;
  if (!(in >> value)) return std::nullopt;
  return value;
}

Finding cpu_count(const MachineView& machine) {
  const CpuCounts cpus = count_cpus(machine);
  std::string sentence = concat(cpus.usable(), " of ", cpus.present, " CPUs may be used");
  std::string proof = "nproc";
  if (cpus.allowed < cpus.present) sentence += concat(" (affinity leaves ", cpus.allowed, ")");
  if (cpus.quota > 0 && cpus.quota < cpus.allowed) {
    sentence += concat(" (the container's quota is ", format_number(cpus.quota, 2), " CPUs, in ", cpus.quota_file, ")");
    proof = "cat " + cpus.quota_file;
  }
  if (cpus.usable() == 1)
    return {"cpus", Outlook::kHurts, sentence + ": reading, augmentation and arithmetic take turns", proof};
  if (2 * cpus.usable() <= cpus.present)
    return {"cpus", Outlook::kHurts, sentence + "; if that is not meant, ask for more when the job or container starts",
            proof};
  return {"cpus", Outlook::kFine, sentence, proof};
}

std::optional<Finding> cpu_throttled(const MachineView& machine) {
  const auto periods = cgroup_counter(machine, "cpu.stat", "nr_periods");
  const auto throttled = cgroup_counter(machine, "cpu.stat", "nr_throttled");
  if (!periods || !throttled || periods->value < 100 || throttled->value < 0.05 * periods->value) return std::nullopt;
  return Finding{"cpu quota", Outlook::kHurts,
                 concat("the container was stopped for its CPU quota in ",
                        format_number(100 * throttled->value / periods->value, 0),
                        " % of its periods: set system.num_cpus to fewer threads, or raise the quota"),
                 "cat " + throttled->file};
}

std::optional<Finding> cpu_load(const MachineView& machine) {
  const auto load = number_of(machine, "/proc/loadavg");
  const CpuCounts cpus = count_cpus(machine);
  if (!load || *load < cpus.present + 0.5) return std::nullopt;
  return Finding{"load", Outlook::kHurts,
                 concat("the load of the last minute is ", format_number(*load, 1), " on ", cpus.present,
                        " CPUs: others compute too, and every measurement now will be slow and unsteady"),
                 "uptime"};
}

struct ResourceLimit {
  std::optional<double> soft, hard;  // absent: unlimited
};

std::optional<ResourceLimit> resource_limit(const MachineView& machine, const std::string& name) {
  for (const std::string& line : read_lines(machine, "/proc/self/limits")) {
    if (!line.starts_with(name)) continue;
    std::istringstream in(line.substr(name.size()));
    std::string soft, hard;
    if (!(in >> soft >> hard)) return std::nullopt;
    const auto parse = [](const std::string& word) -> std::optional<double> {
      if (word == "unlimited") return std::nullopt;
      return std::strtod(word.c_str(), nullptr);
    };
    return ResourceLimit{parse(soft), parse(hard)};
  }
  return std::nullopt;
}

Finding open_files(const MachineView& machine) {
  const auto limit = resource_limit(machine, "Max open files");
  const std::string proof = "ulimit -Hn";
  if (!limit || !limit->hard) return {"open files", Outlook::kFine, "no limit of open files", proof};
  const std::string count = format_number(*limit->hard, 0);
  if (*limit->hard < 128)
    return {"open files", Outlook::kFails,
            concat("at most ", count, " files may be open; raise it with ulimit -n 4096"), proof};
  if (*limit->hard < 4096)
    return {"open files", Outlook::kHurts,
            concat("at most ", count,
                   " files may be open: volumes of large data sets are closed and opened again; "
                   "raise it with ulimit -n 4096"),
            proof};
  return {"open files", Outlook::kFine, concat("up to ", count, " files may be open"), proof};
}

Finding address_space(const MachineView& machine) {
  const auto limit = resource_limit(machine, "Max address space");
  const std::string proof = "ulimit -v";
  if (!limit || !limit->soft) return {"address space", Outlook::kFine, "no limit of the address space", proof};
  const std::string size = human_bytes(static_cast<int64_t>(*limit->soft));
  if (machine.torch.gpus > 0)
    return {"address space", Outlook::kFails,
            concat("the address space is limited to ", size,
                   ", and CUDA reserves more than all memory there is; run "
                   "ulimit -v unlimited first"),
            proof};
  return {"address space", Outlook::kHurts,
          concat("the address space is limited to ", size,
                 ": mapped volumes count in it, and what is over it fails; run ulimit -v unlimited first"),
          proof};
}

std::optional<Finding> thread_count(const MachineView& machine) {
  const auto limit = resource_limit(machine, "Max processes");
  if (!limit || !limit->soft || *limit->soft >= 512) return std::nullopt;
  return Finding{"threads", Outlook::kHurts,
                 concat("at most ", format_number(*limit->soft, 0),
                        " processes and threads of this user may run; with more, threads cannot be started"),
                 "ulimit -u"};
}

double tmpfs_bytes(const std::string& options, double fallback) {  // "rw,size=65536k"
  for (const std::string& option : split(options, ',')) {
    if (!option.starts_with("size=")) continue;
    char* unit = nullptr;
    const double value = std::strtod(option.c_str() + 5, &unit);
    return value * (*unit == 'k' ? 1024 : *unit == 'm' ? kMiB : *unit == 'g' ? kGiB : 1);
  }
  return fallback;
}

std::vector<std::string> hot_zones(const MachineView& machine) {
  constexpr double kHot = 95000;  // thousandths of a degree
  std::vector<std::string> hot;
  for (int zone = 0; zone < 64; ++zone) {
    const std::string folder = concat("/sys/class/thermal/thermal_zone", zone);
    const auto temperature = number_of(machine, folder + "/temp");
    if (!temperature || *temperature < kHot) continue;
    hot.push_back(concat(trim(read_text(machine, folder + "/type").value_or("a sensor")), " ",
                         format_number(*temperature / 1000, 0), " C"));
  }
  return hot;
}

}  // namespace

std::vector<Finding> examine_cpus(const MachineView& machine) {
  std::vector<Finding> found{cpu_count(machine)};
  if (const auto finding = cpu_throttled(machine)) found.push_back(*finding);
  if (const auto finding = cpu_load(machine)) found.push_back(*finding);
  return found;
}

std::vector<Finding> examine_clock(const MachineView& machine) {
  const std::string folder = "/sys/devices/system/cpu/cpu0/cpufreq/", proof = concat("grep . ", folder, "*");
  const auto cap = number_of(machine, folder + "scaling_max_freq"),
             peak = number_of(machine, folder + "cpuinfo_max_freq");
  std::vector<Finding> found;
  if (cap && peak && *cap < 0.8 * *peak)
    found.push_back({"clock", Outlook::kHurts,
                     concat("the CPU's clock is capped at ", format_number(*cap / 1e6, 2), " of ",
                            format_number(*peak / 1e6, 2), " GHz; choose the governor performance"),
                     proof});
  const std::vector<std::string> hot = hot_zones(machine);
  if (!hot.empty())
    found.push_back({"clock", Outlook::kHurts, concat("the machine is hot (", join(hot, ", "), ") and will slow down"),
                     "grep . /sys/class/thermal/thermal_zone*/temp"});
  if (found.empty())
    found.push_back({"clock", Outlook::kFine, "nothing caps or overheats the CPU, as far as it tells", proof});
  return found;
}

std::vector<Finding> examine_memory(const MachineView& machine) {
  const MemoryCounts memory = count_memory(machine);
  std::vector<Finding> found;
  const std::string proof = memory.limit ? "cat " + memory.limit->file : "free -h";
  const bool limited = memory.limit && memory.limit->value < static_cast<double>(memory.total);
  std::string sentence = concat(human_bytes(memory.usable()), " of memory");
  if (limited) sentence += concat(" by the container's limit, of ", human_bytes(memory.total), " in the machine");
  sentence += concat(", ", human_bytes(std::min(memory.available, memory.usable())), " free");
  const bool small = static_cast<double>(memory.usable()) < 4 * kGiB;
  found.push_back({"memory", small ? Outlook::kHurts : Outlook::kFine,
                   small ? sentence + ": little for 3D networks; keep data.cache_gb and the patch small" : sentence,
                   proof});
  const auto kills = cgroup_counter(machine, "memory.events", "oom_kill");
  if (kills && kills->value > 0)
    found.push_back(
        {"memory kills", Outlook::kHurts,
         concat(format_number(kills->value, 0),
                " processes of this container were killed for memory since it started: lower data.cache_gb, "
                "or raise the container's limit"),
         "cat " + kills->file});
  return found;
}

std::vector<Finding> examine_limits(const MachineView& machine) {
  std::vector<Finding> found{open_files(machine), address_space(machine)};
  if (const auto finding = thread_count(machine)) found.push_back(*finding);
  return found;
}

std::vector<Finding> examine_shared_memory(const MachineView& machine) {
  const Mount mount = mount_of(machine, "/dev/shm");
  const std::string proof = "df -h /dev/shm";
  if (mount.point != "/dev/shm")
    return {{"shared memory", Outlook::kFine, "no /dev/shm here; Voxloom's threads do not use it", proof}};
  const double bytes = tmpfs_bytes(mount.options, static_cast<double>(count_memory(machine).total) / 2);
  return {{"shared memory", Outlook::kFine,
           concat("/dev/shm holds up to ", human_bytes(static_cast<int64_t>(bytes)),
                  "; Voxloom's threads do not use it, only a data.stage_dir in it would"),
           proof}};
}

std::vector<Finding> examine_libraries(const MachineView&) {
  std::vector<Finding> found;
  std::vector<std::string> present;
  const std::string proof = "voxloom list formats";
  for (const BuildLibrary& library : build_libraries()) {
    if (library.present)
      present.push_back(library.name);
    else
      found.push_back(
          {"libraries", Outlook::kHurts,
           concat("built without ", library.name, ": ", library.without, "; run `make setup` and `make build` for it"),
           proof});
  }
  if (found.empty())
    found.push_back(
        {"libraries", Outlook::kFine, concat("every format is built in (", join(present, ", "), ")"), proof});
  return found;
}

}  // namespace vox
