#include "train/step.h"

#include <torch/torch.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/span.h"
#include "kernels/cuda.h"
#include "train/data_clock.h"

namespace vox {
namespace {

// Adds the time from its birth to its end to one stage, and is a span of the same name.
class Timed {
 public:
  Timed(StageTimes& times, Stage stage, const char* name)
      : span_(name), times_(times), stage_(stage), start_(Clock::now()) {}
  ~Timed() { times_[stage_] += seconds_since(start_); }

 private:
  Span span_;
  StageTimes& times_;
  Stage stage_;
  Clock::time_point start_;
};

}  // namespace

BatchSource source_of(Pipeline& pipeline, const at::Device& device, const std::string& export_folder) {
  return [&pipeline, device, export_folder, clock = std::make_shared<DataClock>(device)](StageTimes& times) {
    Batch batch;
    clock->begin();
    {
      const Span span("data_wait");
      VOX_ASSERT(pipeline.next(batch));
    }
    times[Stage::kDataWait] += clock->end();
    if (!export_folder.empty()) export_batch(batch, export_folder);
    const Timed timed(times, Stage::kTransfer, "transfer");
    return to_device(batch, device);
  };
}

BatchSource repeating(BatchSource source, std::function<bool()> same) {
  return [source = std::move(source), same = std::move(same),
          batch = std::optional<DeviceBatch>()](StageTimes& times) mutable {
    if (!same()) {
      batch.reset();  // kept, it would keep its place in the queue
      return source(times);
    }
    if (!batch) batch = source(times);
    return *batch;
  };
}

namespace {

// On a CPU alone: a GPU works on when the host is long done.
bool times_loss_backward(const std::vector<at::Tensor>& logits) {
  return recording() && logits.front().is_cpu();
}

// Views are younger than all of the network, so that the backward pass comes to all of them first: a coarser output
// itself has its turn only after the layers that came after it.
void set_apart_from_network(std::vector<at::Tensor>& logits) {
  if (times_loss_backward(logits))
    for (at::Tensor& output : logits) output = output.view_as(output);
}

// A span from here to the moment when the last of the logits has its gradient: the losses' part of the backward pass.
void time_loss_backward(const std::vector<at::Tensor>& logits) {
  if (!times_loss_backward(logits)) return;
  const auto begin = Clock::now();
  const auto missing = std::make_shared<size_t>(0);
  for (const at::Tensor& output : logits) {
    if (!output.requires_grad()) continue;
    ++*missing;
    output.register_hook([begin, missing](const at::Tensor&) {
      if (--*missing == 0) record_span("loss_backward", begin, Clock::now());
    });
  }
}

}  // namespace

namespace {

std::string reason_of(const std::exception& error) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  const std::string text = of_torch ? of_torch->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

}  // namespace

struct StepRunner::Sums {  // over the micro-batches of a step, on the device
  at::Tensor loss;
  std::vector<at::Tensor> terms;  // undefined: not due
  bool replayed = true;           // all micro-batches so far

  void add(const LossResult& result, const at::Tensor& part, double share) {
    const at::NoGradGuard no_grad;
    // Of a captured loss they are memory that the next micro-batch's may write to.
    loss = loss.defined() ? loss + part.detach() : share == 1 ? part.detach() : part.detach().clone();
    terms.resize(result.terms.size());
    for (size_t i = 0; i < result.terms.size(); ++i) {
      if (!result.terms[i].second) continue;
      const at::Tensor term = share == 1 ? *result.terms[i].second : *result.terms[i].second * share;
      terms[i] = terms[i].defined() ? terms[i] + term : term;
    }
  }
};

std::string why_not_captured(const Options& options) {
  if (options.model.architecture == "torchscript") return "a TorchScript module may do anything on the host";
  if (options.model.use_checkpoint && options.model.dropout != 0)
    return "model.use_checkpoint makes dropout masks again in the backward pass";
  return {};
}

StepRunner::Settings StepRunner::settings_of(const Options& options, int64_t micro_batch, Team* team) {
  return {.seed = static_cast<uint64_t>(options.training.seed),
          .accumulation = samples_of_step(options) / micro_batch / team_size(options.system),
          .cuda_graph = options.training.cuda_graph,
          .no_graph = why_not_captured(options),
          .team = team};
}

StepRunner::StepRunner(const Parts& parts, const Settings& settings) : parts_(parts), settings_(settings) {
  ParameterSet& parameters = parts_.network.parameters();
  if (settings_.cuda_graph == "off" || !parameters.device().is_cuda()) return;
  if (!settings_.no_graph.empty()) {
    give_up_graph(settings_.no_graph);
    return;
  }
  GraphSegments segments{.forward =
                             [this](const at::Tensor& image, int64_t first_sample) {
                               return parts_.network.forward(
                                   image, {.training = true, .seed = settings_.seed, .first_sample = first_sample});
                             },
                         .loss =
                             [this](const std::vector<at::Tensor>& logits, const Targets& targets, int64_t step) {
                               GraphLoss loss{loss_of(logits, targets, step), {}, {}};
                               loss.part = part_of(loss.result.total);
                               loss.logit_grads =
                                   torch::autograd::grad({parts_.optimizer.scaled(loss.part)}, logits, {}, std::nullopt,
                                                         /*create_graph=*/false, /*allow_unused=*/true);
                               return loss;
                             },
                         .learns = [this](size_t output, size_t outputs,
                                          int64_t step) { return parts_.loss.reaches(output, outputs, step, part()); },
                         .collect_grads = [&parameters] { parameters.collect_grads(); },
                         .update = [this](const at::Tensor& loss) { update(loss); }};
  if constexpr (cuda::kCompiledIn) graph_ = make_graph_step(segments, parameters.device());
}

StepRunner::~StepRunner() = default;

bool StepRunner::captured() const {
  return graph_ && graph_->settled();
}

std::string StepRunner::take_note() {
  return std::exchange(note_, {});
}

void StepRunner::give_up_graph(const std::string& why) {
  graph_.reset();
  VOX_CHECK(settings_.cuda_graph != "on", "training.cuda_graph is on, but the step cannot be captured: ", why,
            "; set it to auto or off");
  note_ = concat("the step runs without CUDA graphs: ", why);
}

StepReport StepRunner::run(int64_t step, double lr) {
  if (settings_.team && settings_.team->place().index == 0) settings_.team->allow_step(step, lr);
  parts_.optimizer.set_lr(lr);
  if (!graph_ || graph_->settled()) return run_step(step);
  StepReport report;
  const std::shared_ptr<GraphStep> alive = graph_;  // a step may give it up
  alive->on_side_stream([&] { report = run_step(step); });
  if (captured()) note_ = "the step is replayed as CUDA graphs";
  return report;
}

StepReport StepRunner::run_step(int64_t step) {
  StepReport report;
  Sums sums;
  for (int64_t micro = 0; micro < settings_.accumulation; ++micro) add_micro_batch(step, report, sums);
  for (KeptBatch& kept : kept_.all()) come_back_to(kept, step, report, sums);
  kept_.forget_finished();
  if (settings_.team) add_up(sums);
  const Timed timed(times_, Stage::kOptimizer, "optimizer");
  update_or_replay(sums.loss, sums.replayed);
  std::vector<at::Tensor> values{sums.loss};
  for (const at::Tensor& term : sums.terms) {
    report.term_s.push_back(parts_.loss.take_seconds(report.due.size()));
    report.waits.push_back(parts_.loss.take_wait(report.due.size()));
    report.due.push_back(term.defined());
    values.push_back(term.defined() ? term
                                    : at::full({}, std::numeric_limits<float>::quiet_NaN(), sums.loss.options()));
  }
  values.push_back(parts_.optimizer.grad_norm().reshape({}));
  values.push_back(parts_.optimizer.found_inf().reshape({}));
  values.push_back(parts_.optimizer.loss_scale().reshape({}));
  report.values = at::stack(values);
  return report;
}

void StepRunner::update(const at::Tensor& loss) {
  // A loss that is not finite must not move a weight even where its gradient is: x - x is 0 or NaN.
  for (Parameter& parameter : parts_.network.parameters().all()) {
    if (!parameter.grad.defined()) continue;
    parameter.grad.add_(loss - loss);
    break;
  }
  parts_.optimizer.step();
  parts_.network.parameters().settle_statistics(parts_.optimizer.found_inf());
}

// A capture computes nothing: where it fails, the step goes on eagerly as if it had not been tried.
void StepRunner::update_or_replay(const at::Tensor& loss, bool replays) {
  if (graph_ && replays) {
    try {
      return graph_->update(loss);
    } catch (const std::exception& error) {
      give_up_graph(concat("the optimizer could not be captured: ", reason_of(error)));
    }
  }
  update(loss);
}

bool StepRunner::captures(const GraphInput& input) {
  if (!graph_ || !graph_->warmed_up(input)) return false;
  if (graph_->captured(input)) return true;
  if (!input.adds) parts_.network.parameters().zero_grads();
  try {
    graph_->capture(input);
    return true;
  } catch (const std::exception& error) {
    give_up_graph(reason_of(error));
    return false;
  }
}

void StepRunner::add_micro_batch(int64_t step, StepReport& report, Sums& sums) {
  const DeviceBatch batch = parts_.next(times_);
  add_batch(batch, step, report, sums);
  if (!begun_.empty()) kept_.keep(step, batch, std::exchange(begun_, {}));
}

// Late terms of a batch of an earlier step: to the network it is one more micro-batch.
void StepRunner::come_back_to(KeptBatch& kept, int64_t step, StepReport& report, Sums& sums) {
  const bool due = std::any_of(kept.terms.begin(), kept.terms.end(), [&](const LateTerm& late) {
    return parts_.loss.due(late.term, step, LossSet::Part::kLate);
  });
  if (!due) return;
  late_ = &kept.terms;
  add_batch(kept.batch, step, report, sums);
  late_ = nullptr;
}

LossResult StepRunner::loss_of(const std::vector<at::Tensor>& logits, const Targets& targets, int64_t step) {
  if (late_ != nullptr) return parts_.loss.apply(*late_, logits, targets, step);
  if (parts_.loss.begins(step)) begun_ = parts_.loss.begin(logits, targets, step);
  return parts_.loss.compute(logits, targets, step);
}

int64_t StepRunner::restore_kept(const NamedTensors& state, int64_t step) {
  return kept_.restore(state, {parts_.loss, step, settings_.accumulation, [this] { return parts_.next(times_); }});
}

void StepRunner::add_batch(const DeviceBatch& batch, int64_t step, StepReport& report, Sums& sums) {
  const bool is_first = report.samples.empty();
  report.samples.insert(report.samples.end(), batch.samples.begin(), batch.samples.end());
  GraphInput input{batch.image, batch.targets, batch.samples.front().sample, !is_first, batch.resident, step,
                   {},          false};
  const auto is_due = [&](size_t term) {
    return parts_.loss.due(term, step) || (late_ != nullptr && parts_.loss.due(term, step, LossSet::Part::kLate));
  };
  for (size_t i = 0; graph_ && i < parts_.loss.term_names().size(); ++i) input.due.push_back(is_due(i));
  input.loss_reads_back = graph_ && (late_ != nullptr || parts_.loss.reads_back(step));
  const bool replays = captures(input);
  sums.replayed = sums.replayed && replays;
  if (replays) return replay_micro_batch(input, sums);
  ParameterSet& parameters = parts_.network.parameters();
  if (is_first) parameters.zero_grads();
  std::vector<at::Tensor> logits;
  {
    const Timed timed(times_, Stage::kForward, "forward");
    logits = parts_.network.forward(batch.image,
                                    {.training = true, .seed = settings_.seed, .first_sample = input.first_sample});
  }
  set_apart_from_network(logits);
  at::Tensor start;
  {
    const Timed timed(times_, Stage::kLoss, "loss");
    const LossResult loss = loss_of(logits, batch.targets, step);
    const at::Tensor part = part_of(loss.total);
    start = parts_.optimizer.scaled(part);
    sums.add(loss, part, share());
  }
  const Timed timed(times_, Stage::kBackward, "backward");
  time_loss_backward(logits);
  start.backward();
  parameters.collect_grads();
}

void StepRunner::replay_micro_batch(const GraphInput& input, Sums& sums) {
  {
    const Timed timed(times_, Stage::kForward, "forward");
    graph_->forward(input);
  }
  {
    const Timed timed(times_, Stage::kLoss, "loss");
    const GraphLoss loss = graph_->loss(input);
    sums.add(loss.result, loss.part, share());
  }
  const Timed timed(times_, Stage::kBackward, "backward");
  graph_->backward();
}

void StepRunner::add_up(Sums& sums) {
  const Timed timed(times_, Stage::kBackward, "sum_of_processes");
  std::vector<at::Tensor> tensors, values{sums.loss};
  for (const at::Tensor& term : sums.terms)
    if (term.defined()) values.push_back(term);
  const at::Tensor together = at::stack(values).to(at::kFloat);
  std::vector<at::Tensor> statistics;
  ParameterSet& parameters = parts_.network.parameters();
  for (size_t i = 0; i < parameters.all().size(); ++i) {
    const Parameter& parameter = parameters.all()[i];
    const ParameterKind kind = parameter.spec.kind;
    // A replay does not tell which gradients it wrote: all are summed, and those that it did not write nobody reads.
    const bool from_buffer = is_trained(kind) && parameters.device().is_cuda();
    const at::Tensor grad = from_buffer ? parameters.grad_buffer(static_cast<int>(i)) : parameter.grad;
    if (grad.defined()) tensors.push_back(grad);
    if (is_running(kind) && kind != ParameterKind::kBatchCount) statistics.push_back(parameter.value);
  }
  tensors.push_back(together);
  tensors.insert(tensors.end(), statistics.begin(), statistics.end());
  settings_.team->sum(tensors);
  const at::NoGradGuard no_grad;
  for (at::Tensor& one : statistics) one.div_(settings_.team->place().count);
  int64_t next = 0;
  sums.loss = together[next++];
  for (at::Tensor& term : sums.terms)
    if (term.defined()) term = together[next++];
}

double StepRunner::share() const {
  return 1.0 / static_cast<double>(settings_.accumulation * (settings_.team ? settings_.team->place().count : 1));
}

at::Tensor StepRunner::part_of(const at::Tensor& loss) const {
  return share() == 1 ? loss : loss * share();
}

void StepRunner::rehearse(const DeviceBatch& batch, int64_t step) {
  ParameterSet& parameters = parts_.network.parameters();
  const std::vector<at::Tensor> logits = parts_.network.forward(
      batch.image, {.training = true, .seed = settings_.seed, .first_sample = batch.samples.front().sample});
  parts_.optimizer.scaled(parts_.loss.compute(logits, batch.targets, step).total).backward();
  parameters.collect_grads();
  parameters.zero_grads();
  parameters.refresh_shadows();  // running statistics as before
  const at::Device device = parameters.device();
  if (!device.is_cpu()) torch::cuda::synchronize(device.index());
}

StageTimes StepRunner::take_times() {
  const StageTimes times = times_;
  times_ = {};
  return times;
}

StepValues read_step_values(const at::Tensor& row) {
  const float* values = row.const_data_ptr<float>();
  const int64_t terms = row.numel() - 4;
  StepValues result{.loss = static_cast<double>(values[0])};
  for (int64_t i = 0; i < terms; ++i) result.terms.push_back(static_cast<double>(values[1 + i]));
  result.grad_norm = static_cast<double>(values[terms + 1]);
  result.skipped = values[terms + 2] != 0;
  result.loss_scale = static_cast<double>(values[terms + 3]);
  return result;
}

}  // namespace vox
