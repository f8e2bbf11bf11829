// What this process and others use of the machine.
#pragma once

#include <iosfwd>
#include <vector>

namespace vox {

double process_cpu_ms();  // of all its threads
double peak_resident_gb();
// Of all processes since the machine started, on the CPUs with these numbers; on all where `stat` (/proc/stat) lists
// none of them.
double machine_cpu_ms(std::istream& stat, const std::vector<int>& cpus);
std::vector<int> allowed_cpus();  // numbers, by affinity
// Of `cpus` that a run uses among `allowed` ones: how many it lacks while others keep `busy` of the allowed ones busy.
double taken_cpus(double busy, int allowed, int cpus);

}  // namespace vox
