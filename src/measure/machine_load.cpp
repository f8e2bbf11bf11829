#include "measure/machine_load.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <istream>
#include <sstream>
#include <string>

namespace vox {

double process_cpu_ms() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  const auto ms = [](const timeval& time) {
    return 1e3 * static_cast<double>(time.tv_sec) + 1e-3 * static_cast<double>(time.tv_usec);
  };
  return ms(use.ru_utime) + ms(use.ru_stime);
}

double machine_cpu_ms(std::istream& stat, const std::vector<int>& cpus) {
  double everywhere = 0, there = 0;
  bool listed = false;
  for (std::string line; std::getline(stat, line) && line.starts_with("cpu");) {
    std::istringstream in(line.substr(3));
    int number = -1;
    if (line[3] != ' ') in >> number;
    double user = 0, niced = 0, system = 0, idle = 0, waits = 0, interrupts = 0, soft = 0, stolen = 0;
    in >> user >> niced >> system >> idle >> waits >> interrupts >> soft >> stolen;
    const double busy = user + niced + system + interrupts + soft + stolen;
    if (number < 0) everywhere = busy;
    if (std::find(cpus.begin(), cpus.end(), number) == cpus.end()) continue;
    there += busy;
    listed = true;
  }
  return 1e3 * (listed ? there : everywhere) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

std::vector<int> allowed_cpus() {
  std::vector<int> numbers;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return numbers;
  for (int number = 0; number < CPU_SETSIZE; ++number)
    if (CPU_ISSET(number, &set)) numbers.push_back(number);
  return numbers;
}

double taken_cpus(double busy, int allowed, int cpus) {
  return std::clamp(busy - std::max(0, allowed - cpus), 0.0, static_cast<double>(cpus));
}

double peak_resident_gb() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  return static_cast<double>(use.ru_maxrss) * 1024 / 1e9;
}

}  // namespace vox
