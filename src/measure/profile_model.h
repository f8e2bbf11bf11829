// What a step would take if one thing were different: the queue, fed with what was measured, within the CPUs there are.
#pragma once

#include <string>
#include <vector>

#include "measure/profile.h"
#include "measure/queue_model.h"

namespace vox {

struct WhatIf {                        // beside the settings as they are
  int workers = 0;                     // 0: as it is
  int64_t prefetch = 0;                // likewise
  double data_ms_saved = 0;            // of the work of a step's samples
  double own_ms_saved = 0;             // of the step itself
  double background_cpu_ms_saved = 0;  // of other threads: checkpoints
};

class StepModel {
 public:
  StepModel(const Profile& profile, const Options& options);
  double predict(const WhatIf& change) const;

 private:
  double raw(const WhatIf& change) const;
  double data_left(const WhatIf& change) const;  // 0..1 of the work of samples
  double own_ms(const WhatIf& change) const;     // of the step, without waiting
  double cpu_ms_with(const WhatIf& change, double data_left) const;

  QueueModel queue_;
  double work_ms_ = 0;                                          // of a step's samples
  double own_cpu_ms_ = 0, data_cpu_ms_ = 0, other_cpu_ms_ = 0;  // of a step: itself, its samples, threads beside both
  double crowded_ms_ = 0;  // of the step: it had work and no CPU, because others were at theirs
  double cpus_ = 1;
  double stretch_ = 1, calibration_ = 1;
};

// Sums of stages as causes see them, milliseconds a step.
struct CauseTimes {
  double wait = 0, transfer = 0, network = 0, loss = 0, sync = 0, logging = 0, checkpoint = 0;  // of the step
  double storage = 0, storage_wait = 0, read = 0, decode = 0, preprocess = 0, augment = 0;      // of the samples
  double data() const { return storage + read + decode + preprocess + augment; }
};
CauseTimes cause_times(const Profile& profile);
std::string costliest_loss(const Profile& profile);       // "loss.dice"
std::string costliest_transform(const Profile& profile);  // a stage of the samples that is neither reading nor gather
// The data.cache_gb that holds all volumes; absent where the memory that was spare is too small for it.
std::optional<double> whole_cache_gb(const StepRecord& record, const Options& options);
double idle_cpus(const Profile& profile);  // 0..1 of those this process may use

}  // namespace vox
