// Names that --device takes.
#pragma once

#include <string>

namespace vox {

// cpu, cuda or cuda:N, whether this machine has it or not.
bool is_device_name(const std::string& name);

}  // namespace vox
