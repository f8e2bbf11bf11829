// Measures steps from inside a real run: warm-up, the measured steps, a few under torch's profiler, one checkpoint, and
// the same steps with another number of compute threads.
#include <ATen/Parallel.h>
#include <torch/cuda.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/thread_pool.h"
#include "losses/loss.h"
#include "measure/ceilings.h"
#include "measure/doctor_files.h"
#include "measure/handover.h"
#include "measure/machine_load.h"
#include "measure/profile.h"
#include "measure/profile_run.h"
#include "measure/statistics.h"
#include "measure/step_details.h"
#include "report/gpu_monitor.h"
#include "report/machine.h"
#include "train/learner.h"
#include "train/signals.h"
#include "train/threads.h"
#include "train/trainer.h"

namespace vox {

void warm_store(Store& store, double seconds) {
  if (!store.counts().in_memory) return;
  const auto start = Clock::now();
  const Dataset& dataset = store.dataset();
  const Box3 corner{{0, 0, 0}, {1, 1, 1}};
  ThreadPool pool(available_cpus());
  pool.for_each(static_cast<int64_t>(dataset.train.size()), [&](int64_t i) {
    if (seconds_since(start) > seconds) return;
    const int64_t index = dataset.train[static_cast<size_t>(i)];
    const Case& item = dataset.cases[static_cast<size_t>(index)];
    for (int64_t channel = 0; channel < store.image_channels(); ++channel)
      store.fetch(index, Role::kImage, channel, corner);
    if (!item.label.empty()) store.fetch(index, Role::kLabel, 0, corner);
    if (!item.mask.empty()) store.fetch(index, Role::kMask, 0, corner);
  });
}

bool enough_steps(const std::vector<double>& step_ms, double seconds) {
  constexpr size_t kLeast = 12;
  constexpr double kLeastSeconds = 3, kPatientSeconds = 12, kTrusted = 0.03, kOnABusyMachine = 0.1;
  if (step_ms.size() < kLeast || seconds < kLeastSeconds) return false;
  const Interval interval = median_interval(step_ms);
  const double wanted = seconds < kPatientSeconds ? kTrusted : kOnABusyMachine;
  return interval.high - interval.low < wanted * median_of(step_ms);
}

bool whole_rounds(const Options& options, int64_t steps) {
  constexpr int64_t kMany = 3;  // rounds of the queue: what is left over then matters little
  const int64_t queue = options.data.prefetch_factor + 2;
  int64_t rarest = 1;
  for (const LossTerm& term : options.loss.terms) rarest = std::max(rarest, steps_between(term));
  return steps % rarest == 0 && (steps % queue == 0 || rarest >= kMany * queue);
}

namespace {

constexpr int64_t kThreadTrialSteps = 6;        // with another number of compute threads, at least
constexpr double kThreadTrialLeastSeconds = 1;  // the host of a virtual machine moves its CPUs apart for that long
constexpr double kThreadTrialSeconds = 4;       // at most
constexpr double kHandoverEverySeconds = 0.1;   // one takes a few thousandths of that
constexpr double kLeastOthersSeconds = 0.5;     // the machine's CPU time is told in hundredths of a second
constexpr int64_t kAloneSteps = 15;             // on one batch that stays, once the queue of batches is full
constexpr double kAloneSeconds = 1.5;           // at most
constexpr double kWriteSeconds = 1;             // for a checkpoint to be written, at most
constexpr double kWaits = 0.1;                  // of a step: then its own time may depend on who makes its samples

class StepWatch {
 public:
  explicit StepWatch(const ProfileRequest& request)
      : request_(request), detailer_(request.config.options), same_batch_(request.part == ProfilePart::kNoData) {}

  bool same_batch() const { return same_batch_; }
  bool is_quiet() const { return phase_ == Phase::kQuiet; }

  ProbeAnswer after_step(const ProbedStep& step) {
    const auto now = Clock::now();
    if (step.step == 1) begin(*step.store);
    if (step.loss) record_.losses.push_back(*step.loss);
    const ProbeAnswer answer = next(step, now);
    last_ = Clock::now();
    return answer;
  }

  StepRecord take() {
    record_.rss_peak_gb = peak_resident_gb();
    if (seconds_since(others_begin_) > kLeastOthersSeconds) record_.others_cpus_in_trials = others_cpus();
    return std::move(record_);
  }

 private:
  enum class Phase { kWarmUp, kMeasure, kDetails, kSave, kQuiet, kAlone, kThreads };

  void begin(Store& store) {
    if (request_.warm_cache) warm_store(store, 2 * request_.most_seconds);
    begin_ = Clock::now();
  }

  ProbeAnswer next(const ProbedStep& step, Clock::time_point now) {
    switch (phase_) {
      case Phase::kWarmUp:
        if (warm(step)) start(step);
        return ProbeAnswer::kGoOn;
      case Phase::kMeasure:
        record_span(kStepSpan, last_, now);
        step_ms_.push_back(1e3 * std::chrono::duration<double>(now - last_).count());
        if (gpu_ && gpu_->last().use) gpu_use_.push_back(*gpu_->last().use);
        note_handover();
        return measured_enough() ? finish(step) : ProbeAnswer::kGoOn;
      case Phase::kDetails:
        if (!detailer_.step_done(last_, now)) return ProbeAnswer::kGoOn;
        record_.details = detailer_.finish(step, record_, measure_begin_);
        if (record_.details.gpu_busy) record_.gpu_busy = record_.details.gpu_busy;
        return save_once();
      case Phase::kSave:
        return note_saved() ? try_quiet() : ProbeAnswer::kGoOn;
      case Phase::kQuiet:
      case Phase::kAlone:
        return note_trial(now);
      case Phase::kThreads:
        return note_thread_trial(now);
    }
    return ProbeAnswer::kEnd;
  }

  // Until what was made ahead is used up and a few steps have shown their pace.
  bool warm(const ProbedStep& step) const {
    const int64_t ahead = request_.config.options.data.prefetch_factor + 3;
    const bool slow = seconds_since(begin_) > request_.most_seconds / 4 && step.step >= 2;
    return step.step >= std::max<int64_t>(5, ahead) || slow;
  }

  void start(const ProbedStep& step) {
    phase_ = Phase::kMeasure;
    const Options& options = request_.config.options;
    record_.warm_up = step.step;
    record_.micro_batch = step.micro_batch;
    record_.accumulation = options.data.batch_size * options.training.accumulate / step.micro_batch;
    record_.steps_per_epoch = step.steps_per_epoch;
    record_.data_threads = step.data_threads;
    record_.compute_threads = step.compute_threads;
    const ComputeOn where = step.on_gpu ? ComputeOn::kGpu : ComputeOn::kCpu;
    record_.cpus = std::min(available_cpus(), plan_threads(options, where).cpus);
    record_.most_data_threads = most_data_threads(options, where);
    record_.on_gpu = step.on_gpu;
    if (step.on_gpu) gpu_ = std::make_unique<GpuWatch>(monitor_of(0));
    if (const at::Tensor laps = step.learner->loss->term_nanoseconds(); laps.defined())
      laps_before_ = laps.clone();  // on the GPU: reading it here would wait for the steps under way
    record_.before = step.store->counts();
    start_cpu_ms_ = process_cpu_ms();
    watch_others();
    measure_begin_ = Clock::now();
    start_recording();
  }

  void watch_others() {
    others_begin_ = Clock::now();
    others_cpu_ms_ = process_cpu_ms();
    others_machine_ms_ = machine_ms();
  }

  double machine_ms() const {
    std::ifstream stat("/proc/stat");
    return machine_cpu_ms(stat, allowed_);
  }

  double others_cpus() const {
    const double ours = process_cpu_ms() - others_cpu_ms_, all = machine_ms() - others_machine_ms_;
    const double busy = std::max(0.0, all - ours) / std::max(1.0, 1e3 * seconds_since(others_begin_));
    return taken_cpus(busy, static_cast<int>(allowed_.size()), record_.cpus);
  }

  void note_handover() {
    if (record_.on_gpu || seconds_since(handover_at_) < kHandoverEverySeconds) return;
    if (const std::optional<double> ns = handover_ns()) handovers_.push_back(*ns);
    handover_at_ = Clock::now();
  }

  std::optional<double> take_handover() {
    const std::vector<double> all = std::exchange(handovers_, {});
    return all.empty() ? std::nullopt : std::optional<double>(median_of(all));
  }

  bool measured_enough() const {
    const auto count = static_cast<int64_t>(step_ms_.size());
    if (request_.steps && count >= *request_.steps) return true;
    return (!request_.steps && whole_rounds(request_.config.options, count) &&
            enough_steps(step_ms_, seconds_since(measure_begin_))) ||
           (seconds_since(begin_) > 0.8 * request_.most_seconds && count >= 2);
  }

  ProbeAnswer finish(const ProbedStep& step) {
    stop_recording();
    record_.wall_ms = 1e3 * seconds_since(measure_begin_);
    record_.cpu_ms = process_cpu_ms() - start_cpu_ms_;
    record_.others_cpus = others_cpus();
    watch_others();
    record_.handover_ns = take_handover();
    record_.steps = static_cast<int64_t>(step_ms_.size());
    record_.after = step.store->counts();
    record_.spans = take_spans();
    record_.sums = sum_spans(record_.spans);
    record_.rss_gb = resident_gb();
    record_.spare_bytes = spare_memory({});
    gpu_.reset();
    if (!gpu_use_.empty()) record_.gpu_busy = mean_of(gpu_use_);
    if (step.on_gpu) {
      record_.gpu_mem_gb = gpu_reserved_gb(*step.learner);
      record_.gpu_total_gb = gpu_total_gb(*step.learner);
      const LossSet& loss = *step.learner->loss;
      if (laps_before_.defined())
        record_.gpu_terms = term_lines(loss.term_names(), laps_before_, loss.term_nanoseconds(), record_.steps);
    }
    if (!request_.details) return save_once();
    phase_ = Phase::kDetails;
    detailer_.start(step, record_.wall_ms / static_cast<double>(record_.steps));
    return ProbeAnswer::kGoOn;
  }

  ProbeAnswer save_once() {
    const bool saved_meanwhile = std::any_of(record_.sums.steps.begin(), record_.sums.steps.end(),
                                             [](const StageTable& one) { return one.contains("checkpoint"); });
    if (saved_meanwhile) return try_quiet();
    phase_ = Phase::kSave;
    trial_begin_ = Clock::now();
    start_recording();
    return ProbeAnswer::kSave;
  }

  // True once it is written, or that takes too long to wait for.
  bool note_saved() {
    bool written = false;
    for (const SpanRecord& span : take_spans()) {
      const double ms = 1e-6 * static_cast<double>(span.end_ns - span.begin_ns);
      const std::string name = span.name;
      if (name == "checkpoint") record_.checkpoint_ms = ms;
      if (name == "checkpoint_write") record_.checkpoint_write_ms = ms, written = true;
    }
    if (!written) record_.checkpoint_write_ms = 1e3 * seconds_since(trial_begin_);
    if (!written && seconds_since(trial_begin_) < kWriteSeconds) return false;
    stop_recording();
    return true;
  }

  double share_of(const std::string& beginning) const {  // of the stages with such names
    double ms = 0;
    for (const StageTable& step : record_.sums.steps)
      for (const auto& [name, stage] : step)
        if (name.starts_with(beginning)) ms += stage.self_ms;
    return ms / record_.wall_ms;
  }

  // What does the step itself take while nothing is logged or saved? Both leave it cold caches, and a writer at work.
  ProbeAnswer try_quiet() {
    const double share = share_of("checkpoint") + share_of("logging");
    return share < kWaits ? try_alone() : start_trial(Phase::kQuiet);
  }

  // What does the step itself take while it need not wait for its samples, and those who make them are idle? On a GPU
  // the host's waiting does not tell: the GPU may compute meanwhile.
  ProbeAnswer try_alone() {
    const bool wanted = record_.on_gpu || request_.details;
    if (!wanted || share_of("data_wait") < kWaits) return try_threads();
    same_batch_ = true;
    return start_trial(Phase::kAlone);
  }

  ProbeAnswer start_trial(Phase phase) {
    phase_ = phase;
    trial_steps_ = 0;
    trial_begin_ = Clock::now();
    return ProbeAnswer::kGoOn;
  }

  ProbeAnswer note_trial(Clock::time_point now) {
    const double filled_s =
        std::min(kAloneSeconds, 2e-3 * record_.wall_ms / static_cast<double>(record_.steps) *
                                    static_cast<double>(request_.config.options.data.prefetch_factor + 2));
    if (trial_steps_ == 0 && seconds_since(trial_begin_) < filled_s) return ProbeAnswer::kGoOn;
    if (trial_steps_ == 0) {
      if (record_.on_gpu) torch::cuda::synchronize();
      start_recording();
      trial_begin_ = Clock::now();
    } else {
      record_span(kStepSpan, last_, now);
    }
    if (++trial_steps_ <= kAloneSteps && (trial_steps_ < 4 || seconds_since(trial_begin_) < kAloneSeconds))
      return ProbeAnswer::kGoOn;
    stop_recording();
    const std::vector<double> own = own_ms_of(sum_spans(take_spans()).steps);
    std::optional<double>& found = phase_ == Phase::kQuiet ? record_.quiet_ms : record_.alone_ms;
    if (!own.empty()) found = record_.on_gpu ? gpu_ms_a_step() : median_of(own);
    same_batch_ = false;
    return phase_ == Phase::kQuiet ? try_alone() : try_threads();
  }

  double gpu_ms_a_step() const {  // of the trial
    torch::cuda::synchronize();
    return 1e3 * seconds_since(trial_begin_) / static_cast<double>(trial_steps_ - 1);
  }

  // On a CPU: does the step itself become faster on all CPUs, or, where it has more threads than those, on fewer?
  ProbeAnswer try_threads() {
    if (record_.on_gpu || record_.compute_threads == record_.cpus) return ProbeAnswer::kEnd;
    phase_ = Phase::kThreads;
    trial_threads_ = record_.compute_threads > record_.cpus ? std::max(1, record_.cpus - 1) : record_.cpus;
    at::set_num_threads(trial_threads_);
    trial_steps_ = 0;
    trial_begin_ = Clock::now();
    start_recording();
    return ProbeAnswer::kGoOn;
  }

  ProbeAnswer note_thread_trial(Clock::time_point now) {
    record_span(kStepSpan, last_, now);
    note_handover();
    const double seconds = seconds_since(trial_begin_);
    const bool more = ++trial_steps_ < kThreadTrialSteps || seconds < kThreadTrialLeastSeconds;
    if (more && (trial_steps_ < 2 || seconds < kThreadTrialSeconds)) return ProbeAnswer::kGoOn;
    stop_recording();
    std::vector<StageTable> steps = sum_spans(take_spans()).steps;
    if (!steps.empty()) steps.erase(steps.begin());  // it also started the threads
    std::vector<double> own = own_ms_of(steps);
    if (own.empty()) return ProbeAnswer::kEnd;
    std::sort(own.begin(), own.end());
    record_.other_threads = {.threads = trial_threads_,
                             .own_ms = median_of(own),
                             .slow_ms = own[(3 * own.size() - 1) / 4],
                             .handover_ns = take_handover()};
    return ProbeAnswer::kEnd;
  }

  const ProfileRequest& request_;
  const std::vector<int> allowed_ = allowed_cpus();
  Clock::time_point begin_, last_ = Clock::now(), measure_begin_, trial_begin_, others_begin_ = last_, handover_at_;
  Phase phase_ = Phase::kWarmUp;
  StepRecord record_;
  std::vector<double> step_ms_, gpu_use_, handovers_;
  std::unique_ptr<GpuWatch> gpu_;  // on a thread of its own: a step that is measured does not wait for the driver
  at::Tensor laps_before_;         // LossSet::term_nanoseconds; undefined on a CPU
  StepDetailer detailer_;
  double start_cpu_ms_ = 0, others_cpu_ms_ = 0, others_machine_ms_ = 0;
  bool same_batch_;
  int64_t trial_steps_ = 0;
  int trial_threads_ = 0;
};

}  // namespace

// The recipe as it is, but silent, without validation and without an end.
TrainRequest measuring_request(const ProfileRequest& request, const ScratchFolder& folder) {
  TrainRequest train;
  train.config = request.config;
  Options& options = train.config.options;
  options.training.max_epochs = 1'000'000;
  options.validation.every = 0;
  options.monitor.report = false;
  options.monitor.progress = "off";
  train.run = folder.path() / "run";
  train.resume.mode = ResumeMode::kNever;
  train.device = request.device;
  train.command = "voxloom profile";
  return train;
}

StepRecord record_steps(const ProfileRequest& request) {
  const SignalWatch signals;  // also between its parts: whoever ends it lets the folder go
  const auto leave_if_asked = [&] {
    if (const int signal = signals.stop_signal(); signal != 0) throw Interrupted{signal};
  };
  const ScratchFolder folder("profile");
  StepWatch watch(request);
  TrainRequest train_request = measuring_request(request, folder);
  train_request.probe = StepProbe{.after_step = [&](const ProbedStep& step) { return watch.after_step(step); },
                                  .losses = request.losses,
                                  .same_batch = [&] { return watch.same_batch(); },
                                  .is_quiet = [&] { return watch.is_quiet(); }};
  if (const TrainOutcome outcome = train(train_request); outcome.exit_status != 0)
    throw Interrupted{outcome.exit_status - 128};
  leave_if_asked();
  StepRecord record = watch.take();
  if (request.details && record.details.steps > 0)
    record.details.ceilings =
        measure_ceilings(record.on_gpu ? CeilingOf::kGpu : CeilingOf::kCpu, request.config.options.training.precision);
  leave_if_asked();
  return record;
}

}  // namespace vox
