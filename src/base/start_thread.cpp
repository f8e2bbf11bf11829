#include "base/start_thread.h"

namespace vox {

Error no_more_threads(const std::system_error& cause) {
  return Error(
      concat("cannot start another thread: ", cause.code().message(),
             "; this user or container may have no more (`ulimit -u`, pids.max), or memory is short: end other "
             "programs, or give a smaller system.num_cpus, and run the same command again"),
      Fault::kMachine);
}

}  // namespace vox
