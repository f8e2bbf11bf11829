#include "report/machine.h"

#include <unistd.h>

#include <array>
#include <cmath>
#include <ctime>
#include <fstream>
#include <limits>
#include <sstream>

#include "base/error.h"
#include "base/text.h"
#include "base/thread_pool.h"

namespace vox {
namespace {

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t colon = line.find(':');
    if (colon != std::string::npos) return trim(line.substr(colon + 1));
  }
  return "unknown CPU";
}

int64_t physical_memory_bytes() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<int64_t>(sysconf(_SC_PAGESIZE));
}

double seconds_of(const std::string& utc) {
  std::tm parts{};
  const char* end = strptime(utc.c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  if (!end || *end) return std::numeric_limits<double>::quiet_NaN();
  return static_cast<double>(timegm(&parts));
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

std::string machine_description() {
  return concat(host_name(), ", ", cpu_model(), ", ", available_cpus(), " CPUs, ",
                human_bytes(physical_memory_bytes()));
}

double resident_gb() {
  std::ifstream file("/proc/self/statm");
  int64_t total = 0, resident = 0;
  file >> total >> resident;
  return static_cast<double>(resident * sysconf(_SC_PAGESIZE)) / 1e9;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

double seconds_between(const std::string& begin_utc, const std::string& end_utc) {
  return seconds_of(end_utc) - seconds_of(begin_utc);
}

uint64_t process_start_ticks(int64_t pid) {
  std::ifstream file(concat("/proc/", pid, "/stat"));
  std::string text;
  if (!std::getline(file, text)) return 0;
  const size_t after_name = text.rfind(')');  // the name may hold spaces and brackets
  if (after_name == std::string::npos) return 0;
  std::istringstream fields(text.substr(after_name + 1));
  std::string state, skipped;
  fields >> state;
  if (state == "Z" || state == "X") return 0;  // dead, not yet collected by its parent
  for (int field = 4; field < 22; ++field) fields >> skipped;
  uint64_t ticks = 0;
  fields >> ticks;
  return ticks;
}

}  // namespace vox
