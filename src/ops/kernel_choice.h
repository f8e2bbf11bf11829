// Which kernels a GPU runs where there is a choice.
#pragma once

#include <string>

namespace vox::ops {

// system.kernel_arch: "auto" takes our own convolutions on the GPUs they are written for, "generic" cuDNN everywhere.
void set_kernel_arch(const std::string& arch);
bool own_convolutions_allowed();

}  // namespace vox::ops
