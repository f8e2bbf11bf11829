#include "train/training_loop.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/text.h"
#include "nets/weights.h"
#include "ops/kernel_choice.h"
#include "train/checkpoint.h"
#include "train/device_source.h"
#include "train/ema.h"
#include "train/validate.h"

namespace vox {
namespace {

constexpr double kWritingShare = 10;       // times as long as it took to write the last one, before the next is due
constexpr double kSaveAtLeastEvery = 600;  // seconds: a machine that dies in a long epoch costs no more than this

const std::vector<std::pair<Stage, const char*>>& named_stages() {
  static const std::vector<std::pair<Stage, const char*>> stages{
      {Stage::kDataWait, "data_wait"}, {Stage::kTransfer, "transfer"}, {Stage::kForward, "forward"},
      {Stage::kLoss, "loss"},          {Stage::kBackward, "backward"}, {Stage::kOptimizer, "optimizer"}};
  return stages;
}

// There once the device has got this far.
at::Tensor on_its_way_to_host(const at::Tensor& values) {
  const at::Tensor pinned = at::empty(values.sizes(), values.options().device(at::kCPU).pinned_memory(true));
  pinned.copy_(values, /*non_blocking=*/true);
  return pinned;
}

bool is_better(const std::optional<double>& score, const std::optional<double>& best, bool higher) {
  return score && (!best || (higher ? *score > *best : *score < *best));
}

}  // namespace

TrainingLoop::TrainingLoop(const Parts& parts)
    : parts_(parts),
      terms_(parts.learner.loss->term_names()),
      validation_loss_(loss_of_validation(parts.options.loss), parts.options.data, parts.learner.model.out_channels,
                       parts.learner.model.heads),
      folder_(parts.writer.folder().checkpoints()),
      term_ns_(terms_.size()),
      term_values_(terms_.size()),
      window_start_(Clock::now()),
      last_save_(Clock::now()) {
  const Options& options = parts.options;
  const int64_t effective = options.data.batch_size * options.training.accumulate;
  length_ = {options.training.max_epochs, parts.state.steps_per_epoch, effective};
  const int64_t first_step = parts.learner.loss->first_unfinished(parts.state.step);
  TrainingSource data = training_source({parts.store, options, first_step * effective, parts.state.micro_batch,
                                         parts.threads.data, parts.device, parts.export_folder, &parts.learner});
  if (!data.placement.said.empty()) parts.log.say(data.placement.said);
  pipeline_ = std::move(data.pipeline);
  BatchSource source = std::move(data.next);
  if (parts.probe && parts.probe->same_batch) source = repeating(std::move(source), parts.probe->same_batch);
  runner_ = std::make_unique<StepRunner>(
      StepRunner::Parts{*parts.learner.network, *parts.learner.loss, *parts.learner.optimizer, std::move(source)},
      StepRunner::Settings{.seed = static_cast<uint64_t>(options.training.seed),
                           .accumulation = effective / parts.state.micro_batch,
                           .cuda_graph = options.training.cuda_graph,
                           .no_graph = why_not_captured(options)});
  take_up_kept();
  parts.learner.loss->time_terms(parts.device);  // a warm-up does not count
}

// Batches are pure functions of their numbers: those that terms with a delay wait for are simply made again.
void TrainingLoop::take_up_kept() {
  const int64_t lacking = runner_->restore_kept(parts_.kept, parts_.state.step);
  runner_->take_times();
  parts_.kept.clear();
  if (lacking > 0)
    parts_.log.warn("the checkpoint does not hold what a loss term with a delay had found; the term is left out once");
}

LoopEnd TrainingLoop::run() {
  TrainState& state = parts_.state;
  window_start_ = last_save_ = Clock::now();
  while (state.step < length_.total_steps() && !state.stopped_early) {
    const bool epoch_done = step_once();
    const int signal = parts_.signals.stop_signal();
    const StopRequest request = parts_.writer.stop_requested();
    const bool stop = signal != 0 || request == StopRequest::kAtStep || (epoch_done && request != StopRequest::kNone);
    if (epoch_done) end_epoch(stop);
    if (stop) {
      if (!epoch_done) {
        read_pending();
        save({});
      }
      return signal != 0 ? LoopEnd::kSignal : LoopEnd::kRequest;
    }
    if (parts_.signals.take_save_request() || seconds_since(last_save_) > kSaveAtLeastEvery) {
      read_pending();
      save({});
      window_start_ = Clock::now();
    }
    if (parts_.probe && !probe_goes_on()) return LoopEnd::kRequest;
  }
  return state.stopped_early ? LoopEnd::kStoppedEarly : LoopEnd::kFinished;
}

bool TrainingLoop::probe_goes_on() {
  const ProbeAnswer answer = parts_.probe->after_step({.step = parts_.state.step,
                                                       .steps_per_epoch = length_.steps_per_epoch,
                                                       .micro_batch = parts_.state.micro_batch,
                                                       .data_threads = parts_.threads.data,
                                                       .compute_threads = parts_.threads.compute,
                                                       .on_gpu = parts_.device.is_cuda(),
                                                       .store = parts_.store.get(),
                                                       .learner = &parts_.learner,
                                                       .loss = std::exchange(probed_loss_, std::nullopt)});
  if (answer != ProbeAnswer::kSave) return answer == ProbeAnswer::kGoOn;
  read_pending();
  save({});
  return true;
}

// True where it was the last of its epoch.
bool TrainingLoop::step_once() {
  TrainState& state = parts_.state;
  const double lr = parts_.schedule.lr(state.step);
  StepReport report = runner_->run(state.step, lr);
  if (const std::string note = runner_->take_note(); !note.empty()) parts_.log.say(note);
  ++state.step;
  if (parts_.probe && state.step <= parts_.probe->losses)
    probed_loss_ = read_step_values(report.values.to(at::kCPU, at::kFloat)).loss;
  parts_.writer.step_done(state.step);
  pending_.push_back({state.step, lr, std::move(report)});
  background_.rethrow_failure();
  const bool epoch_done = state.step % length_.steps_per_epoch == 0;
  const int64_t patience = std::max<int64_t>(1, parts_.options.training.max_bad_steps);
  if (window_) read_window();  // of earlier steps: the device has this one to do meanwhile
  if (state.step % parts_.options.monitor.log_every == 0 || static_cast<int64_t>(pending_.size()) >= patience)
    begin_window();
  if (epoch_done) read_pending();
  if (window_ && !window_->there) read_window();
  const Span span("logging");
  parts_.log.tick(state.step);
  return epoch_done;
}

void TrainingLoop::read_pending() {
  if (window_) read_window();
  begin_window();
  if (window_) read_window();
}

void TrainingLoop::begin_window() {
  if (pending_.empty()) return;
  std::vector<at::Tensor> rows;
  for (const Pending& pending : pending_) rows.push_back(pending.report.values);
  window_.emplace();
  window_->values = at::stack(rows).to(at::kFloat).contiguous();
  if (parts_.device.is_cuda()) {
    window_->values = on_its_way_to_host(window_->values);
    const at::Tensor term_ns = parts_.learner.loss->term_nanoseconds();
    if (term_ns.defined()) window_->term_ns = on_its_way_to_host(term_ns);
    window_->there = std::make_unique<c10::Event>(at::kCUDA);
    window_->there->record(c10::impl::VirtualGuardImpl(at::kCUDA).getStream(parts_.device));
  }
  window_->times = runner_->take_times();
  window_->steps = std::exchange(pending_, {});
}

// The one place where the host waits for the device.
void TrainingLoop::read_window() {
  if (window_->there) {
    const Span waiting("sync");
    window_->there->synchronize();
  }
  const Span span("logging");
  const Window window = std::move(*window_);
  window_.reset();
  const double count = static_cast<double>(window.steps.size());
  const double wall_s = seconds_since(window_start_);
  StageTimes mean = window.times;
  parts_.state.epoch_sums.seconds += wall_s;
  parts_.state.epoch_sums.data_wait_s += mean[Stage::kDataWait];
  for (double& seconds : mean.seconds) seconds /= count;
  note_gpu_times(window);
  for (size_t i = 0; i < window.steps.size(); ++i) {
    const Pending& step = window.steps[i];
    const StepValues step_values = read_step_values(window.values[static_cast<int64_t>(i)]);
    note_terms(step.report, step_values);
    if (step.step % parts_.options.monitor.log_every == 0) log_step(step, step_values, wall_s / count, mean);
    note_values(step, step_values);
  }
  window_start_ = Clock::now();
}

void TrainingLoop::note_terms(const StepReport& report, const StepValues& values) {
  const auto note = [&](const std::string& name, const std::optional<double>& seconds) {
    if (!seconds) return;
    term_times_[name].first += *seconds;
    ++term_times_[name].second;
  };
  for (size_t i = 0; i < terms_.size(); ++i) {
    note(terms_[i], report.term_s[i]);
    if (!report.due[i]) continue;
    note(terms_[i] + "_wait", report.waits[i]);
    term_values_[i] = values.terms[i];
  }
}

// A step that is logged is the last of its window: the sums are those that it left.
void TrainingLoop::note_gpu_times(const Window& window) {
  if (!window.term_ns.defined()) return;
  const int64_t* const sums = window.term_ns.const_data_ptr<int64_t>();
  for (size_t i = 0; i < terms_.size(); ++i) {
    const double seconds = 1e-9 * static_cast<double>(sums[i] - std::exchange(term_ns_[i], sums[i]));
    const auto steps = std::count_if(window.steps.begin(), window.steps.end(),
                                     [&](const Pending& pending) { return pending.report.due[i]; });
    if (steps == 0) continue;
    term_times_[terms_[i]].first += seconds;
    term_times_[terms_[i]].second += steps;
  }
}

void TrainingLoop::note_values(const Pending& pending, const StepValues& values) {
  EpochSums& sums = parts_.state.epoch_sums;
  sums.loss.add(values.loss);
  for (size_t i = 0; i < terms_.size(); ++i) sums.terms[terms_[i]].add(values.terms[i]);
  // While 16-mixed looks for its loss scale, gradients overflow by design.
  const bool scale_search = std::isfinite(values.loss) && values.loss_scale > 1;
  if (!values.skipped) parts_.state.bad_in_a_row = 0;
  if (values.skipped && !scale_search) note_bad(pending, values);
}

void TrainingLoop::note_bad(const Pending& pending, const StepValues& values) {
  TrainState& state = parts_.state;
  ++state.bad_steps;
  ++state.bad_in_a_row;
  BadStep bad{
      .step = pending.step, .what = std::isfinite(values.loss) ? "gradient" : "loss", .samples = {}, .cases = {}};
  for (size_t i = 0; i < terms_.size(); ++i)
    if (pending.report.due[i] && !std::isfinite(values.terms[i])) bad.what = "loss." + terms_[i];
  std::set<std::string> cases;
  for (const SampleInfo& sample : pending.report.samples) {
    bad.samples.push_back(sample.sample);
    cases.insert(parts_.store->dataset().cases[static_cast<size_t>(sample.case_index)].id);
  }
  bad.cases.assign(cases.begin(), cases.end());
  parts_.log.bad_step(bad);
  if (state.bad_in_a_row < std::max<int64_t>(1, parts_.options.training.max_bad_steps)) return;
  background_.finish();
  const int64_t in_a_row = std::exchange(state.bad_in_a_row, 0);
  pending_.clear();  // a step that was under way meanwhile
  if (!fs::exists(folder_.last())) save({});
  background_.finish();
  throw Error(concat(in_a_row, " steps in a row were not finite (the last: ", bad.what, " at step ", bad.step,
                     ", cases ", join(bad.cases, ", "), "). The run stopped; ", folder_.last().string(),
                     " holds the last good weights, bad_steps.jsonl the samples. Look at those cases with `voxloom "
                     "inspect`, or lower training.lr."));
}

void TrainingLoop::log_step(const Pending& pending, const StepValues& values, double step_s, const StageTimes& mean) {
  LoggedStep logged;
  logged.step = pending.step;
  logged.loss = values.loss;
  logged.lr = pending.lr;
  logged.grad_norm = values.grad_norm;
  for (size_t i = 0; i < terms_.size(); ++i)
    if (const auto value = std::exchange(term_values_[i], std::nullopt)) logged.terms.emplace_back(terms_[i], *value);
  for (const auto& [name, sum] : term_times_)
    logged.term_s.emplace_back(name, sum.first / static_cast<double>(sum.second));
  term_times_.clear();
  logged.step_s = step_s;
  for (const auto& [stage, name] : named_stages()) logged.stage_s.emplace_back(name, mean[stage]);
  logged.gpu_mem_gb = gpu_peak_so_far();
  parts_.log.step(logged);
}

// A captured step has its memory once and for all: replaying it takes nothing that the allocator would see.
std::optional<double> TrainingLoop::gpu_peak_so_far() {
  if (const std::optional<double> peak = gpu_peak_gb(parts_.device))
    gpu_peak_gb_ = std::max(gpu_peak_gb_.value_or(0), *peak);
  return gpu_peak_gb_;
}

void TrainingLoop::log_histograms(int64_t step) {
  const Span span("histograms");
  for (const Parameter& parameter : parts_.learner.network->parameters().all()) {
    if (!parameter.grad.defined()) continue;
    const at::Tensor values = parameter.grad.to(at::kCPU, at::kFloat).contiguous();
    parts_.log.histogram("gradient/" + parameter.name(),
                         {values.const_data_ptr<float>(), static_cast<size_t>(values.numel())}, step);
  }
}

bool TrainingLoop::has_validation() const {
  return parts_.options.validation.every > 0 && !parts_.store->dataset().validation.empty();
}

void TrainingLoop::end_epoch(bool stop) {
  TrainState& state = parts_.state;
  const Options& options = parts_.options;
  const int64_t epoch = state.step / length_.steps_per_epoch;
  if (parts_.log.wants_histograms()) log_histograms(state.step);
  const bool last_epoch = epoch == length_.epochs;
  bool best = false;
  last_scores_.clear();
  if (has_validation() && (epoch % options.validation.every == 0 || last_epoch)) best = validate_now();
  EpochSummary summary;
  summary.epoch = epoch;
  summary.epochs = length_.epochs;
  summary.loss = state.epoch_sums.loss.mean();
  for (const auto& [name, mean] : state.epoch_sums.terms)
    if (mean.mean()) summary.terms.emplace_back(name, *mean.mean());
  summary.scores = last_scores_;
  summary.seconds = state.epoch_sums.seconds;
  if (summary.seconds > 0) {
    summary.samples_per_s =
        static_cast<double>(length_.steps_per_epoch * length_.effective_batch) / state.epoch_sums.seconds;
    summary.data_wait = state.epoch_sums.data_wait_s / state.epoch_sums.seconds;
  }
  summary.gpu_mem_gb = gpu_peak_so_far();
  {
    const Span span("logging");
    parts_.log.epoch(summary, state.step);
  }
  state.epoch_sums = {};
  CheckpointLinks links{.best = best, .epoch = {}, .keep_last = options.training.keep_last};
  if (options.training.save_every > 0 && epoch % options.training.save_every == 0) links.epoch = epoch;
  const bool needed = best || links.epoch || last_epoch || stop || state.stopped_early;
  if (needed || is_due()) save(links);
  window_start_ = Clock::now();
}

bool TrainingLoop::validate_now() {
  TrainState& state = parts_.state;
  const Options& options = parts_.options;
  const int64_t epoch = state.step / length_.steps_per_epoch;
  parts_.log.phase("validation", state.step);
  const EmaScope averaged(parts_.learner.network->parameters());
  ValidationResult result =
      validate({.network = *parts_.learner.network,
                .loss = validation_loss_,
                .store = parts_.store,
                .options = options,
                .step = state.step,
                .data_threads = parts_.threads.data,
                .images = options.monitor.images && epoch % std::max<int64_t>(1, options.monitor.image_every) == 0,
                .progress = [&](int64_t done, int64_t total) { parts_.log.validating(done, total); }});
  const std::optional<double> score = result.at(options.validation.metric);
  const bool higher = higher_is_better(options.validation);
  if (score) parts_.schedule.report(*score, higher);
  if (!score) parts_.log.warn(without_score(options.validation.metric, state.step));
  state.schedule = parts_.schedule.state();
  const bool best = is_better(score, state.best_score, higher);
  state.validations_without_gain = best ? 0 : state.validations_without_gain + 1;
  if (best) {
    state.best_score = score;
    state.best_step = state.step;
  }
  const int64_t patience = options.training.early_stop;
  state.stopped_early = patience > 0 && state.validations_without_gain >= patience;
  last_scores_ = result.scores;
  parts_.log.validation(state.step, result.scores, std::move(result.strips));
  return best;
}

// Epochs may be shorter than it takes to write: then nobody waits for it, and most of the time nothing is written.
bool TrainingLoop::is_due() const {
  return !background_.busy() && seconds_since(last_save_) > kWritingShare * last_write_s_;
}

void TrainingLoop::save(const CheckpointLinks& links) {
  VOX_ASSERT(pending_.empty() && !window_);
  const Span span("checkpoint");
  last_save_ = Clock::now();
  parts_.log.phase("saving", parts_.state.step);
  parts_.state.kernel_choices = ops::kernel_choices();  // validation has shapes of its own
  Metadata metadata = to_metadata(parts_.state, parts_.options);
  for (const auto& [key, value] : describe(parts_.learner.model)) metadata["model." + key] = value;
  auto snapshot =
      std::make_shared<Snapshot>(take_snapshot(parts_.learner.network->parameters(), *parts_.learner.optimizer));
  for (auto& kept : runner_->kept_state()) snapshot->tensors.push_back(std::move(kept));
  const Span waiting("checkpoint_wait");
  background_.submit([this, snapshot, metadata = std::move(metadata), links, step = parts_.state.step] {
    const Span writing("checkpoint_write");
    const Clock::time_point begin = Clock::now();
    parts_.writer.save_progress();
    write_snapshot(folder_, std::move(*snapshot), metadata, links);
    last_write_s_ = seconds_since(begin);
    parts_.writer.checkpoint_written(folder_.last(), step);
  });
}

}  // namespace vox
