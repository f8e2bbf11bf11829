#include "measure/profile_model.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "measure/statistics.h"

namespace vox {
namespace {

// What the step takes longer because its samples are made meanwhile. Measured where it was tried without; else from
// stages in which the thread that trains has work at every moment (on a GPU it also waits in them).
double crowded_ms(const Profile& profile) {
  if (profile.record.alone_ms) {
    const CauseTimes times = cause_times(profile);
    return std::max(0.0, profile.own_ms - times.logging - times.checkpoint - *profile.record.alone_ms);
  }
  static const std::set<std::string> kWork{"forward", "loss", "loss_backward", "backward", "optimizer"};
  if (profile.record.on_gpu) return 0;
  std::vector<double> waited;
  for (const StageTable& step : profile.record.sums.steps) {
    double ms = 0;
    for (const auto& [name, stage] : step)
      if (kWork.contains(name) || name.starts_with("loss.")) ms += stage.waited_ms();
    waited.push_back(ms);
  }
  return std::clamp(median_of(waited), 0.0, profile.own_ms);
}

}  // namespace

StepModel::StepModel(const Profile& profile, const Options& options) {
  const StepRecord& record = profile.record;
  const auto steps = static_cast<double>(record.steps);
  queue_ = {.sample_ms = record.sums.sample_ms,
            .samples_per_batch = record.micro_batch,
            .batches_per_step = record.accumulation,
            .workers = record.data_threads,
            .batches_in_flight = options.data.prefetch_factor + 2,
            .step_ms = profile.own_ms};
  for (const double ms : queue_.sample_ms) work_ms_ += ms;
  const auto per_step = static_cast<double>(record.micro_batch * record.accumulation);
  if (!queue_.sample_ms.empty()) work_ms_ *= per_step / static_cast<double>(queue_.sample_ms.size());
  cpus_ = static_cast<double>(record.cpus);
  data_cpu_ms_ = std::max(0.0, work_ms_ - record.sums.storage_wait_ms / steps);
  crowded_ms_ = crowded_ms(profile);
  if (!record.alone_ms) crowded_ms_ = std::min(crowded_ms_, data_cpu_ms_);  // other processes take CPUs too
  for (const auto& [name, stage] : record.sums.background) other_cpu_ms_ += stage.cpu_ms / steps;
  // The process's CPU time also holds samples that were begun before or ended after what was measured: the step itself
  // is not charged with more than its threads can use meanwhile.
  const double most = profile.own_ms * std::clamp(static_cast<double>(record.compute_threads), 1.0, cpus_);
  own_cpu_ms_ = std::clamp(record.cpu_ms / steps - data_cpu_ms_ - other_cpu_ms_, 0.0, most);
  // Samples count by their CPU time; what stretched it (locks, other processes) stays where training waits for them.
  const double queued = predicted_step_ms(queue_);
  if (profile.data_wait_ms > 0.05 * profile.step_ms && queued > 0) {
    const double stretch = std::max(1.0, profile.step_ms / queued);
    for (double& ms : queue_.sample_ms) ms *= stretch;
    work_ms_ *= stretch;
    stretch_ = stretch;
  }
  const double here = raw({});
  if (here > 0) calibration_ = profile.step_ms / here;
}

double StepModel::data_left(const WhatIf& change) const {
  return work_ms_ > 0 ? std::clamp(1 - change.data_ms_saved * stretch_ / work_ms_, 0.0, 1.0) : 1;
}

double StepModel::own_ms(const WhatIf& change) const {
  return std::max(0.0, queue_.step_ms - change.own_ms_saved - crowded_ms_ * (1 - data_left(change)));
}

double StepModel::raw(const WhatIf& change) const {
  QueueModel queue = queue_;
  if (change.workers > 0) queue.workers = change.workers;
  if (change.prefetch > 0) queue.batches_in_flight = change.prefetch + 2;
  const double left = data_left(change);
  queue.step_ms = own_ms(change);
  for (double& ms : queue.sample_ms) ms *= left;
  return std::max(predicted_step_ms(queue), cpu_ms_with(change, left) / cpus_);
}

double StepModel::cpu_ms_with(const WhatIf& change, double data_left) const {
  const double own_left = queue_.step_ms > 0 ? std::max(0.0, 1 - change.own_ms_saved / queue_.step_ms) : 0;
  return own_cpu_ms_ * own_left + data_cpu_ms_ * data_left +
         std::max(0.0, other_cpu_ms_ - change.background_cpu_ms_saved);
}

// Where less was waited than the queue says, the waiting is what it overrates: the step itself takes what it took.
double StepModel::predict(const WhatIf& change) const {
  return std::max(raw(change) * calibration_, own_ms(change));
}

CauseTimes cause_times(const Profile& profile) {
  CauseTimes times;
  // A host that waits for a GPU which is busy waits for the network.
  const std::optional<double>& alone_ms = profile.record.alone_ms;
  const double busy = alone_ms ? *alone_ms / profile.step_ms : profile.record.gpu_busy.value_or(1);
  const bool computes = profile.record.on_gpu && busy > 0.5;
  for (const StageLine& stage : profile.step_stages) {
    const std::string& name = stage.name;
    double& place = name == "data_wait"                         ? times.wait
                    : name == "transfer"                        ? times.transfer
                    : name.starts_with("loss")                  ? times.loss
                    : name == "sync" && !computes               ? times.sync
                    : name == "logging" || name == "histograms" ? times.logging
                    : name.starts_with("checkpoint")            ? times.checkpoint
                                                                : times.network;
    place += stage.ms;
  }
  for (const StageLine& stage : profile.data_stages) {
    const std::string& name = stage.name;
    double& place = name == "storage"      ? times.storage
                    : name == "read"       ? times.read
                    : name == "decode"     ? times.decode
                    : name == "preprocess" ? times.preprocess
                                           : times.augment;
    place += stage.ms;
  }
  times.storage_wait = profile.record.sums.storage_wait_ms / static_cast<double>(profile.record.steps);
  return times;
}

std::string costliest_loss(const Profile& profile) {
  std::string name = "loss";
  double most = 0;
  for (const StageLine& stage : profile.step_stages) {
    if (!stage.name.starts_with("loss.") || stage.ms <= most) continue;
    name = stage.name;
    most = stage.ms;
  }
  return name;
}

std::string costliest_transform(const Profile& profile) {
  static const std::set<std::string> kNone{"storage", "read",   "decode", "preprocess", "fetch",
                                           "draw",    "gather", "target", "other_data"};
  std::string name;
  double most = 0;
  for (const StageLine& stage : profile.data_stages) {
    if (kNone.contains(stage.name) || stage.ms <= most) continue;
    name = stage.name;
    most = stage.ms;
  }
  return name;
}

std::optional<double> whole_cache_gb(const StepRecord& record, const Options& options) {
  constexpr double kGib = 1 << 30;
  const double needed = std::ceil((static_cast<double>(record.after.volume_bytes) * 1.15 / kGib + 0.3) * 10) / 10;
  const double wanted = std::max(needed, options.data.cache_gb);
  const bool fits = (wanted - options.data.cache_gb) * kGib < 0.8 * static_cast<double>(record.spare_bytes);
  return fits ? std::optional<double>(wanted) : std::nullopt;
}

double idle_cpus(const Profile& profile) {
  const StepRecord& record = profile.record;
  if (record.wall_ms <= 0) return 0;
  const double busy = record.cpu_ms / record.wall_ms + record.others_cpus;
  return std::clamp(1 - busy / static_cast<double>(record.cpus), 0.0, 1.0);
}

}  // namespace vox
