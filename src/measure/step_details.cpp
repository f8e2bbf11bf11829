#include "measure/step_details.h"

#include <ATen/DeviceAccelerator.h>
#include <torch/torch.h>

#include <algorithm>
#include <limits>

#include "measure/machine_load.h"
#include "measure/profile_run.h"
#include "train/learner.h"

namespace vox {
namespace {

constexpr int64_t kTracedSteps = 3, kTracedStepsOnGpu = 10;
// A GPU idles while its profiler starts, and is slower for a while after that: so long steps do not count yet.
constexpr double kSecondsToSpeedUp = 0.4;
constexpr double kTracedMs = 4000;  // at most, unless one step takes longer
constexpr size_t kListedOperations = 15;

double bytes_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<double>(tensor.numel()) * static_cast<double>(tensor.element_size()) : 0;
}

int64_t element_count(const std::vector<int64_t>& sizes) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return count;
}

// Each multiply-add of the forward pass has one in the gradient of its input and one in that of its weight; likewise
// each of the three reads or writes what goes into a layer and what comes out.
StepWork count_work(const LayerTable& table, const Learner& learner, int64_t micro_batches) {
  const ParameterSet& parameters = learner.network->parameters();
  const auto element = static_cast<double>(at::elementSize(parameters.compute_type()));
  double moved = 0;
  for (const ops::LayerRecord& layer : table.layers)
    moved += static_cast<double>(layer.input + element_count(layer.output));
  StepWork work;
  work.flops = 3 * 2e9 * table.gmac() * static_cast<double>(micro_batches);
  work.bytes = element * (3 * moved + static_cast<double>(table.moved_elements)) * static_cast<double>(micro_batches);
  double optimizer = 0;  // the gradient is read, all else is read and written
  for (const Parameter& parameter : parameters.all())
    optimizer += bytes_of(parameter.grad) + 2 * bytes_of(parameter.master);
  for (const auto& [name, state] : learner.optimizer->state()) optimizer += 2 * bytes_of(state);
  if (work.bytes > 0) work.bytes += optimizer;
  return work;
}

// What can be told apart; the rest is other.
std::vector<MemoryLine> memory_by_kind(const LayerTable& table, const Learner& learner, const StepRecord& record) {
  double parameters = 0, gradients = 0, optimizer = 0;
  const ParameterSet& all = learner.network->parameters();
  for (const Parameter& one : all.all()) {
    parameters += bytes_of(one.master) + bytes_of(one.ema);
    if (!one.value.is_same(one.master)) parameters += bytes_of(one.value);
    gradients += bytes_of(one.grad);
  }
  for (const auto& [name, state] : learner.optimizer->state()) optimizer += bytes_of(state);
  const bool fused = all.device().is_cuda() && all.compute_type() != at::kFloat;
  const auto kept = static_cast<double>(fused ? table.kept_fused_elements : table.kept_elements) *
                    static_cast<double>(at::elementSize(all.compute_type()));
  std::vector<MemoryLine> lines{{"parameters", parameters / 1e9},
                                {"gradients", gradients / 1e9},
                                {"optimizer", optimizer / 1e9},
                                {"activations", kept / 1e9}};
  if (!record.on_gpu) lines.push_back({"data_cache", static_cast<double>(record.after.resident_bytes) / 1e9});
  const double total_gb = record.on_gpu ? record.gpu_mem_gb.value_or(0) : peak_resident_gb();
  double known = 0;
  for (const MemoryLine& line : lines) known += line.gb;
  lines.push_back({"other", std::max(0.0, total_gb - known)});
  return lines;
}

// A step that is replayed as graphs has no stages to be seen: its forward pass runs once more, on its own; and before
// that to find kernels and memory. Returns when the pass that counts began.
Clock::time_point forward_eagerly(const ProbedStep& step, const Options& options) {
  Network& network = *step.learner->network;
  const at::Device device = network.parameters().device();
  const Extent3& patch = options.data.patch_size;
  const at::NoGradGuard no_grad;
  auto begin = Clock::now();
  try {
    const at::Tensor image = at::zeros({step.micro_batch, step.learner->model.in_channels, patch.z, patch.y, patch.x},
                                       at::TensorOptions(device).dtype(at::kFloat));
    for (int pass = 0; pass < 2; ++pass) {
      torch::cuda::synchronize(device.index());
      begin = Clock::now();
      const Span span("forward");
      network.forward(image, {.training = true});
    }
  } catch (const c10::OutOfMemoryError&) {  // beside the step's own memory there is no room: no stages then
    begin = Clock::time_point::max();
  }
  torch::cuda::synchronize(device.index());
  return begin;
}

std::vector<TracedEvent> begun(const std::vector<TracedEvent>& events, int64_t from_ns, int64_t until_ns) {
  std::vector<TracedEvent> some;
  std::copy_if(events.begin(), events.end(), std::back_inserter(some),
               [&](const TracedEvent& event) { return event.begin_ns >= from_ns && event.begin_ns < until_ns; });
  return some;
}

// Where steps run eagerly the stages of the network are seen in them too: here they are one.
std::vector<StageLine> with_whole_forward(const std::vector<StageLine>& stages) {
  std::vector<StageLine> merged;
  for (const StageLine& stage : stages) {
    const std::string name = stage.name.starts_with("forward.") ? "forward" : stage.name;
    auto line = std::find_if(merged.begin(), merged.end(), [&](const StageLine& one) { return one.name == name; });
    if (line == merged.end()) line = merged.insert(merged.end(), StageLine{name, 0});
    line->ms += stage.ms;
  }
  return merged;
}

int64_t ns_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(end - begin).count();
}

}  // namespace

std::vector<StageLine> term_lines(const std::vector<std::string>& terms, const at::Tensor& before_ns,
                                  const at::Tensor& after_ns, int64_t steps) {
  const at::Tensor spent_ns = (after_ns - before_ns).cpu();
  std::vector<StageLine> lines;
  for (size_t i = 0; i < terms.size(); ++i) {
    const int64_t ns = spent_ns.const_data_ptr<int64_t>()[i];
    lines.push_back({"loss." + terms[i], 1e-6 * static_cast<double>(ns) / static_cast<double>(steps)});
  }
  return lines;
}

double gpu_reserved_gb(const Learner& learner) {
  const at::Device device = learner.network->parameters().device();
  const auto stats = at::getDeviceAllocator(device.type())->getDeviceStats(device.index());
  return static_cast<double>(stats.reserved_bytes[0].peak) / 1e9;
}

double gpu_total_gb(const Learner& learner) {
  const at::Device device = learner.network->parameters().device();
  return static_cast<double>(at::getDeviceAllocator(device.type())->getMemoryInfo(device.index()).second) / 1e9;
}

void StepDetailer::start(const ProbedStep& step, double step_ms) {
  on_gpu_ = step.on_gpu;
  const int64_t most = on_gpu_ ? kTracedStepsOnGpu : kTracedSteps;
  wanted_ = std::clamp<int64_t>(static_cast<int64_t>(kTracedMs / std::max(1e-3, step_ms)), 1, most);
  if (on_gpu_) torch::cuda::synchronize();
  trace_ = std::make_unique<OperationTrace>(on_gpu_ ? OperationTrace::Sees::kHostAndGpu : OperationTrace::Sees::kHost);
  started_ = Clock::now();
  if (!on_gpu_) begin_counting();
}

void StepDetailer::begin_counting() {
  counts_ = true;
  start_recording();
  origin_ = Clock::now();
}

bool StepDetailer::step_done(Clock::time_point begin, Clock::time_point end) {
  if (!counts_) {
    torch::cuda::synchronize();
    if (seconds_since(started_) > kSecondsToSpeedUp) begin_counting();
    return false;
  }
  record_span(kStepSpan, begin, end);
  last_step_end_ns_ = ns_between(origin_, end);
  return ++details_.steps >= wanted_;
}

StepDetails StepDetailer::finish(const ProbedStep& step, const StepRecord& record, Clock::time_point measured) {
  if (on_gpu_) torch::cuda::synchronize();
  steps_end_ns_ = ns_between(origin_, Clock::now());
  details_.step_ms = 1e-6 * static_cast<double>(steps_end_ns_) / static_cast<double>(details_.steps);
  if (on_gpu_) forward_begin_ns_ = ns_between(origin_, forward_eagerly(step, options_));
  stop_recording();
  const std::vector<TracedEvent> events = trace_->stop(origin_);
  details_.spans = take_spans();
  read_events(events, record);
  const LayerTable table = step.learner->network->layer_table(options_.data.patch_size, step.micro_batch);
  details_.work = count_work(table, *step.learner, record.accumulation);
  details_.memory = memory_by_kind(table, *step.learner, record);
  const int64_t later = ns_between(measured, origin_);
  for (SpanRecord& span : details_.spans) {
    span.begin_ns += later;
    span.end_ns += later;
  }
  for (TracedEvent& event : details_.events) {
    event.begin_ns += later;
    event.end_ns += later;
  }
  return std::move(details_);
}

void StepDetailer::read_events(const std::vector<TracedEvent>& events, const StepRecord& record) {
  constexpr int64_t kEver = std::numeric_limits<int64_t>::max();
  details_.events = begun(events, 0, steps_end_ns_);
  details_.slowest_operations = slowest_operations(details_.events, details_.steps, kListedOperations);
  details_.forward_stages = forward_lines(record.spans, record.steps);
  const bool ran_there = std::any_of(events.begin(), events.end(), [](const TracedEvent& one) { return one.on_gpu(); });
  if (!ran_there) return;
  details_.gpu_busy = gpu_busy_share(details_.events);
  details_.gpu_stages = with_whole_forward(gpu_time_by_span(details_.events, details_.spans, details_.steps));
  details_.sync_points =
      static_cast<double>(count_sync_points(begun(events, 0, last_step_end_ns_))) / static_cast<double>(details_.steps);
  details_.forward_stages = gpu_time_by_span(begun(events, forward_begin_ns_, kEver), details_.spans, 1);
  for (StageLine& stage : details_.forward_stages) {
    stage.name = name_of_forward_stage(stage.name);
    stage.ms *= static_cast<double>(record.accumulation);
  }
  std::stable_partition(details_.forward_stages.begin(), details_.forward_stages.end(),
                        [](const StageLine& stage) { return stage.name != "other"; });
}

}  // namespace vox
