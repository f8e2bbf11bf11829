// What this machine can do at most: measured, not looked up.
#pragma once

#include <string>

#include "measure/profile.h"

namespace vox {

// With all CPUs, or on the GPU; takes about half a second. `precision` as training.precision spells it.
enum class CeilingOf { kCpu, kGpu };
Ceilings measure_ceilings(CeilingOf device, const std::string& precision);

}  // namespace vox
