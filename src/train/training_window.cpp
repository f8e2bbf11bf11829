// What steps found out, on its way from the device into the log.
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "base/text.h"
#include "train/training_loop.h"

namespace vox {
namespace {

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

}  // namespace

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
  const double wall_s = seconds_since(window_start_);
  parts_.state.epoch_sums.seconds += wall_s;
  parts_.state.epoch_sums.data_wait_s += window.times[Stage::kDataWait];
  unlogged_.steps += static_cast<int64_t>(window.steps.size());
  unlogged_.wall_s += wall_s;
  for (size_t i = 0; i < window.times.seconds.size(); ++i) unlogged_.times.seconds[i] += window.times.seconds[i];
  note_gpu_times(window);
  for (size_t i = 0; i < window.steps.size(); ++i) {
    const Pending& step = window.steps[i];
    const StepValues step_values = read_step_values(window.values[static_cast<int64_t>(i)]);
    note_terms(step.report, step_values);
    if (step.step % parts_.options.monitor.log_every == 0 && !is_quiet()) log_step(step, step_values);
    note_values(step, step_values);
  }
  window_start_ = Clock::now();
  if (!last_straw_) return;
  if (!pending_.empty()) return read_pending();  // steps that were under way meanwhile are told too
  end_for_bad_steps();
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
  if (parts_.team) {  // the others have samples too
    bad.samples.resize(static_cast<size_t>(length_.effective_batch));
    std::iota(bad.samples.begin(), bad.samples.end(), (pending.step - 1) * length_.effective_batch);
  }
  bad.cases.assign(cases.begin(), cases.end());
  parts_.log.bad_step(bad);
  if (state.bad_in_a_row >= std::max<int64_t>(1, parts_.options.training.max_bad_steps))
    last_straw_ = {std::move(bad), state.bad_in_a_row};
}

void TrainingLoop::end_for_bad_steps() {
  const auto& [bad, in_a_row] = *last_straw_;
  background_.finish();
  parts_.state.bad_in_a_row = 0;
  const bool saved_before = fs::exists(folder_.last());
  save({});
  background_.finish();
  throw Error(concat(in_a_row == 1 ? "a step was" : concat(in_a_row, " steps in a row were"),
                     " not finite (the last: ", bad.what, " at step ", bad.step, ", cases ", join(bad.cases, ", "),
                     "). The run stopped; ", folder_.last().string(), " holds the weights after the last good step, ",
                     saved_before ? "previous.safetensors beside it those that were saved before, " : "",
                     "bad_steps.jsonl the samples. Look at those cases with `voxloom inspect`, or lower training.lr."));
}

void TrainingLoop::log_step(const Pending& pending, const StepValues& values) {
  const Unlogged sums = std::exchange(unlogged_, {});
  const auto count = static_cast<double>(sums.steps);
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
  logged.step_s = sums.wall_s / count;
  for (const auto& [stage, name] : named_stages()) logged.stage_s.emplace_back(name, sums.times[stage] / count);
  logged.gpu_mem_gb = gpu_peak_so_far();
  parts_.log.step(logged);
}

// A captured step has its memory once and for all: replaying it takes nothing that the allocator would see.
std::optional<double> TrainingLoop::gpu_peak_so_far() {
  if (const std::optional<double> peak = gpu_peak_gb(parts_.device))
    gpu_peak_gb_ = std::max(gpu_peak_gb_.value_or(0), *peak);
  return gpu_peak_gb_;
}

void TrainingLoop::log_histograms(int64_t step, double loss_scale) {
  const Span span("histograms");
  for (const Parameter& parameter : parts_.learner.network->parameters().all()) {
    if (!parameter.grad.defined()) continue;
    const at::Tensor values = parameter.grad.to(at::kCPU, at::kFloat).contiguous() / loss_scale;
    parts_.log.histogram("gradient/" + parameter.name(),
                         {values.const_data_ptr<float>(), static_cast<size_t>(values.numel())}, step);
  }
}

}  // namespace vox
