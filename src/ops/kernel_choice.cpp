#include "ops/kernel_choice.h"

#include <atomic>

#include "base/error.h"

namespace vox::ops {
namespace {

std::atomic<bool> generic{false};

}  // namespace

void set_kernel_arch(const std::string& arch) {
  VOX_CHECK(arch == "auto" || arch == "generic", "system.kernel_arch: there is auto and generic, not \"", arch, "\"");
  generic = arch == "generic";
}

bool own_convolutions_allowed() {
  return !generic;
}

}  // namespace vox::ops
