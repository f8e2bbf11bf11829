#include "measure/doctor.h"

#include <algorithm>

namespace vox {

const char* name_of(Outlook verdict) {
  if (verdict == Outlook::kFails) return "will fail";
  return verdict == Outlook::kHurts ? "will hurt" : "fine";
}

Outlook worst(const std::vector<Finding>& findings) {
  Outlook verdict = Outlook::kFine;
  for (const Finding& finding : findings) verdict = std::max(verdict, finding.verdict);
  return verdict;
}

const std::vector<MachineCheck>& machine_checks() {
  static const std::vector<MachineCheck> checks{
      {"gpu", examine_gpu},
      {"gpu state", examine_gpu_state},
      {"torch", examine_torch},
      {"operations", examine_operations},
      {"instructions", examine_instructions},
      {"cpus", examine_cpus},
      {"clock", examine_clock},
      {"memory", examine_memory},
      {"limits", examine_limits},
      {"shared memory", examine_shared_memory},
      {"folders", examine_folders},
      {"libraries", examine_libraries},
  };
  return checks;
}

std::vector<Finding> examine_machine(const MachineView& machine) {
  std::vector<Finding> all;
  for (const MachineCheck& check : machine_checks()) {
    const std::vector<Finding> found = check.look(machine);
    all.insert(all.end(), found.begin(), found.end());
  }
  return all;
}

}  // namespace vox
