// How far apart two CPUs are at this moment: what the threads of an operation pay whenever they meet.
#pragma once

#include <optional>

namespace vox {

// Nanoseconds that a cache line takes from the first CPU that this process may use to the last and back; takes some
// tenths of a millisecond. Absent with one CPU, and where one of the two is not to be had.
std::optional<double> handover_ns();

}  // namespace vox
