#include "train/training_loop.h"

#include <torch/torch.h>

#include <algorithm>
#include <nlohmann/json.hpp>

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

bool is_better(const std::optional<double>& score, const std::optional<double>& best, bool higher) {
  return score && (!best || (higher ? *score > *best : *score < *best));
}

struct ValidationStopped {};  // thrown out of one

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
      last_save_(Clock::now()),
      saved_(!parts.from_file) {
  for (size_t i = 0; i < terms_.size(); ++i)
    if (const auto kept = parts.state.unlogged_terms.find(terms_[i]); kept != parts.state.unlogged_terms.end())
      term_values_[i] = kept->second;
  const Options& options = parts.options;
  const int64_t effective = samples_of_step(options);
  length_ = {options.training.max_epochs, parts.state.steps_per_epoch, effective};
  const int64_t first_step = parts.learner.loss->first_unfinished(parts.state.step);
  TrainingSource data = training_source({parts.store,
                                         options,
                                         first_step * effective,
                                         parts.state.micro_batch,
                                         parts.threads.data,
                                         parts.device,
                                         parts.export_folder,
                                         &parts.learner,
                                         {0, team_size(options.system)}});
  if (!data.placement.said.empty()) parts.log.say(data.placement.said);
  pipeline_ = std::move(data.pipeline);
  BatchSource source = std::move(data.next);
  if (parts.probe && parts.probe->same_batch) source = repeating(std::move(source), parts.probe->same_batch);
  runner_ = std::make_unique<StepRunner>(
      StepRunner::Parts{*parts.learner.network, *parts.learner.loss, *parts.learner.optimizer, std::move(source)},
      StepRunner::settings_of(options, parts.state.micro_batch, parts.team));
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
  while (state.epoch_open || (state.step < length_.total_steps() && !state.stopped_early)) {
    if (!state.epoch_open) step_once();  // else the run was stopped in a validation, which comes first
    const bool epoch_done = state.epoch_open;
    if (epoch_done) end_epoch();
    const int signal = parts_.signals.stop_signal();
    const StopRequest request = parts_.writer.stop_requested();
    if (signal != 0 || request == StopRequest::kAtStep || (epoch_done && request != StopRequest::kNone)) {
      read_pending();
      if (!saved_) save({});
      return signal != 0 ? LoopEnd::kSignal : LoopEnd::kRequest;
    }
    if (save_is_wanted()) {
      read_pending();
      save({});
      window_start_ = Clock::now();
    }
    if (parts_.probe && !probe_goes_on()) return LoopEnd::kRequest;
  }
  return state.stopped_early ? LoopEnd::kStoppedEarly : LoopEnd::kFinished;
}

bool TrainingLoop::save_is_wanted() {
  return parts_.signals.take_save_request() || (!saved_ && seconds_since(last_save_) > kSaveAtLeastEvery);
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

void TrainingLoop::step_once() {
  TrainState& state = parts_.state;
  const double lr = parts_.schedule.lr(state.step);
  const bool draws = parts_.log.wants_histograms() && (state.step + 1) % length_.steps_per_epoch == 0;
  const double scale = draws ? parts_.learner.optimizer->loss_scale().item<double>() : 1;  // the step may change it
  StepReport report = runner_->run(state.step, lr);
  if (const std::string note = runner_->take_note(); !note.empty()) parts_.log.say(note);
  ++state.step;
  state.epoch_open = state.step % length_.steps_per_epoch == 0;
  saved_ = false;
  if (parts_.probe && state.step <= parts_.probe->losses)
    probed_loss_ = read_step_values(report.values.to(at::kCPU, at::kFloat)).loss;
  parts_.writer.step_done(state.step);
  pending_.push_back({state.step, lr, std::move(report)});
  background_.rethrow_failure();
  const int64_t patience = std::max<int64_t>(1, parts_.options.training.max_bad_steps);
  if (window_) read_window();  // of earlier steps: the device has this one to do meanwhile
  if (state.step % parts_.options.monitor.log_every == 0 || static_cast<int64_t>(pending_.size()) >= patience)
    begin_window();
  if (state.epoch_open) read_pending();
  if (window_ && !window_->there) read_window();
  const Span span("logging");
  parts_.log.tick(state.step);
  if (draws) log_histograms(state.step, scale);
}

bool TrainingLoop::is_quiet() const {
  return parts_.probe && parts_.probe->is_quiet && parts_.probe->is_quiet();
}

bool TrainingLoop::has_validation() const {
  return parts_.options.validation.every > 0 && !parts_.store->dataset().validation.empty();
}

// Its validation may be stopped: then the epoch stays open, and a resumed run begins with it.
void TrainingLoop::end_epoch() {
  TrainState& state = parts_.state;
  const Options& options = parts_.options;
  const int64_t epoch = state.step / length_.steps_per_epoch;
  const bool last_epoch = epoch >= length_.epochs;
  bool best = false;
  last_scores_.clear();
  try {
    if (has_validation() && (epoch % options.validation.every == 0 || last_epoch)) best = validate_now();
  } catch (const ValidationStopped&) {
    return;
  }
  state.epoch_open = saved_ = false;
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
  const bool needed = best || links.epoch || last_epoch || state.stopped_early;
  if (!is_quiet() && (needed || is_due())) save(links);
  window_start_ = Clock::now();
}

// A validation may take longer than an epoch. Between two of its windows happens what else happens between two steps.
void TrainingLoop::look_up_from_validation() {
  if (save_is_wanted()) {
    const EmaScope own(parts_.learner.network->parameters());  // back from the averaged ones
    save({});
    parts_.log.phase("validation", parts_.state.step);
  }
  if (parts_.signals.stop_signal() != 0 || parts_.writer.stop_requested() == StopRequest::kAtStep)
    throw ValidationStopped();
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
                .data_threads = parts_.threads.data,
                .micro_batch = parts_.state.micro_batch,
                .images = options.monitor.images && epoch % std::max<int64_t>(1, options.monitor.image_every) == 0,
                .progress = [&](int64_t done, int64_t total) { parts_.log.validating(done, total); },
                .between = [&] { look_up_from_validation(); }});
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
  if (parts_.team) parts_.team->check();  // what a process that is gone left undone must not be kept
  const Span span("checkpoint");
  last_save_ = Clock::now();
  saved_ = true;
  parts_.log.phase("saving", parts_.state.step);
  parts_.log.flush();
  parts_.state.kernel_choices = ops::kernel_choices();  // validation has shapes of its own
  parts_.state.unlogged_terms.clear();
  for (size_t i = 0; i < terms_.size(); ++i)
    if (term_values_[i]) parts_.state.unlogged_terms[terms_[i]] = *term_values_[i];
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
