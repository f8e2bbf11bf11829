// voxloom doctor: what of this machine, and of a recipe on it, is fine, will hurt, or will fail; each with a sentence
// and the command that proves it. Facts are gathered first and judged afterwards, so that a test can give a machine
// that is not there: files of /proc and /sys under another root, a driver of its own, a torch of its own.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "measure/doctor_gpu.h"
#include "measure/doctor_torch.h"

namespace vox {

enum class Outlook { kFine, kHurts, kFails };
const char* name_of(Outlook verdict);  // "fine", "will hurt", "will fail"

struct Finding {
  std::string name;
  Outlook verdict = Outlook::kFine;
  std::string sentence;
  std::string proof;  // a command line that shows it
};

struct NamedFolder {
  std::string name;  // "run folder"
  fs::path path;     // may not exist yet
};

// A child that ran one convolution in bfloat16; absent: there was no reason to try.
struct ChildOutcome {
  int signal = 0, status = 0;  // 0 and 0: it ended well
};

struct MachineView {
  fs::path root = "/";                 // of the files of /proc, /sys and /dev
  std::optional<std::string> visible;  // CUDA_VISIBLE_DEVICES
  std::string device;                  // --device; empty: the recipe says
  TorchFacts torch;
  GpuFacts gpus;
  std::vector<NamedFolder> folders;
  std::function<ChildOutcome()> try_bfloat16;  // empty: not tried
};

struct MachineCheck {
  std::string name;
  std::vector<Finding> (*look)(const MachineView& machine);
};
const std::vector<MachineCheck>& machine_checks();
std::vector<Finding> examine_machine(const MachineView& machine);

Outlook worst(const std::vector<Finding>& findings);

// The families of checks, each in its file.
std::vector<Finding> examine_gpu(const MachineView& machine);
std::vector<Finding> examine_gpu_state(const MachineView& machine);
std::vector<Finding> examine_torch(const MachineView& machine);
std::vector<Finding> examine_operations(const MachineView& machine);
std::vector<Finding> examine_instructions(const MachineView& machine);
std::vector<Finding> examine_cpus(const MachineView& machine);
std::vector<Finding> examine_clock(const MachineView& machine);
std::vector<Finding> examine_memory(const MachineView& machine);
std::vector<Finding> examine_limits(const MachineView& machine);
std::vector<Finding> examine_shared_memory(const MachineView& machine);
std::vector<Finding> examine_folders(const MachineView& machine);
std::vector<Finding> examine_libraries(const MachineView& machine);

}  // namespace vox
