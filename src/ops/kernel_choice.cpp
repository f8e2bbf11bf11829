#include "ops/kernel_choice.h"

#include <atomic>
#include <mutex>

#include "base/error.h"

namespace vox::ops {
namespace {

std::atomic<bool> generic{false};
std::atomic<KernelTiming> when{KernelTiming::kFixed};

struct Known {
  std::mutex mutex;
  KernelChoices choices;  // guarded by it
};
Known& known() {
  static Known all;
  return all;
}

}  // namespace

void set_kernel_arch(const std::string& arch) {
  VOX_CHECK(arch == "auto" || arch == "generic", "system.kernel_arch: there is auto and generic, not \"", arch, "\"");
  generic = arch == "generic";
}

bool own_convolutions_allowed() {
  return !generic;
}

void set_kernel_timing(KernelTiming timing) {
  when = timing;
}

void adopt_kernel_choices(const KernelChoices& choices) {
  const std::lock_guard lock(known().mutex);
  for (const auto& [shape, kernel] : choices) known().choices[shape] = kernel;
}

KernelChoices kernel_choices() {
  const std::lock_guard lock(known().mutex);
  return known().choices;
}

bool choose_own(const std::string& shape, bool expected, const std::function<bool()>& own_is_faster) {
  if (when == KernelTiming::kFixed) return expected;
  const std::lock_guard lock(known().mutex);
  const auto found = known().choices.find(shape);
  if (found != known().choices.end()) return found->second == "own";
  if (!own_is_faster) return expected;
  const bool own = own_is_faster();
  known().choices[shape] = own ? "own" : "cudnn";
  return own;
}

bool kernels_are_timed() {
  return when == KernelTiming::kOncePerShape;
}

std::string known_choice(const std::string& name) {
  const std::lock_guard lock(known().mutex);
  const auto found = known().choices.find(name);
  return found == known().choices.end() ? std::string() : found->second;
}

void keep_choice(const std::string& name, const std::string& choice) {
  const std::lock_guard lock(known().mutex);
  known().choices[name] = choice;
}

}  // namespace vox::ops
