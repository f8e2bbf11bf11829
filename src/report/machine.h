// This machine, this process and this moment, as run.json and the report name them.
#pragma once

#include <cstdint>
#include <string>

namespace vox {

std::string host_name();
std::string machine_description();  // "node7, AMD EPYC 7763, 16 CPUs, 62.8 GiB"
double resident_gb();               // of this process, in 1e9 bytes
std::string utc_now();              // "2026-01-31T12:00:00Z"
double seconds_between(const std::string& begin_utc, const std::string& end_utc);  // NaN where one cannot be read
uint64_t process_start_ticks(int64_t pid);                                         // 0 where there is no such process

}  // namespace vox
