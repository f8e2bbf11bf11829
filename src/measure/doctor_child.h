// A child process for what may kill a process.
#pragma once

#include <string>
#include <vector>

#include "measure/doctor.h"

namespace vox {

// This program again with other arguments, silent. After `seconds` it is killed, which counts as SIGKILL.
ChildOutcome run_this_program(const std::vector<std::string>& arguments, double seconds);

}  // namespace vox
