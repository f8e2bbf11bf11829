#include "train/threads.h"

#include <algorithm>

#include "base/thread_pool.h"

namespace vox {
namespace {

// A CPU that computes is what a step waits for, so the data gets few; beside a GPU nearly all of them feed it.
int automatic_data_threads(int cpus, ComputeOn where) {
  return where == ComputeOn::kCpu ? 1 + cpus / 8 : std::clamp(cpus - 2, 1, 16);
}

}  // namespace

ThreadPlan plan_threads(const Options& options, ComputeOn where) {
  ThreadPlan plan;
  plan.cpus = options.system.num_cpus > 0 ? static_cast<int>(options.system.num_cpus) : available_cpus();
  const int automatic = std::max(1, automatic_data_threads(plan.cpus, where));
  plan.compute = std::max(1, plan.cpus - automatic);
  if (options.system.compute_threads > 0)
    plan.compute = std::min(plan.cpus, static_cast<int>(options.system.compute_threads));
  const int64_t workers = options.data.num_workers;
  plan.data = workers >= 0 ? std::max(1, static_cast<int>(workers)) : automatic;
  if (options.system.num_cpus > 0) plan.data = std::min(plan.data, std::max(1, plan.cpus - plan.compute));
  return plan;
}

}  // namespace vox
