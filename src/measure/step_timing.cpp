#include "measure/step_timing.h"

#include <ATen/Parallel.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <span>
#include <sstream>

#include "base/random.h"
#include "base/span.h"
#include "base/thread_pool.h"
#include "measure/memory_estimate.h"
#include "train/kernel_cache.h"
#include "train/learner.h"
#include "train/step.h"
#include "volume/shelf.h"

namespace vox {
namespace {

double seconds_since_program_start() {
  std::ifstream file("/proc/self/stat");
  std::stringstream text;
  text << file.rdbuf();
  const std::string all = text.str();
  const size_t name_end = all.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(all.substr(name_end + 2));
  std::string field;
  constexpr int kStartTime = 20;  // of the fields behind the name
  for (int i = 0; i < kStartTime; ++i) fields >> field;
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  const double start = std::stod(field) / static_cast<double>(sysconf(_SC_CLK_TCK));
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec) - start;
}

at::Tensor random_image(const std::vector<int64_t>& shape, uint64_t seed, const at::Device& device) {
  if (device.is_cuda()) {
    torch::manual_seed(seed);
    return at::randn(shape, at::TensorOptions(at::kFloat).device(device));
  }
  at::Tensor image = at::empty(shape);
  Random random(seed, 0, kSynthStream);
  for (float& value : std::span(image.data_ptr<float>(), static_cast<size_t>(image.numel())))
    value = static_cast<float>(random.normal());
  return image;
}

DeviceBatch random_batch(const Options& options, int64_t channels, const ParameterSet& parameters) {
  const Extent3& patch = options.data.patch_size;
  const int64_t batch = options.data.batch_size;
  const auto seed = static_cast<uint64_t>(options.training.seed);
  const at::Device device = parameters.device();
  const at::Tensor image = random_image({batch, channels, patch.z, patch.y, patch.x}, seed, device);
  const at::Tensor label = random_image({batch, 1, patch.z, patch.y, patch.x}, seed + 1, device).gt(0.5);
  DeviceBatch result;
  result.image = image.contiguous(parameters.memory_format());
  result.targets.label = label.to(options.data.target == "regression" ? at::kFloat : at::kByte);
  result.samples.resize(static_cast<size_t>(batch));
  result.resident = true;
  return result;
}

void wait_for(const at::Device& device) {
  if (device.is_cuda()) torch::cuda::synchronize(device.index());
}

}  // namespace

struct StepBench::Impl {
  struct StartClock {  // splits the time from the start of the program
    void lap(const char* what) {
      const double now = seconds_since_program_start();
      laps.emplace_back(what, now - last);
      last = now;
    }
    std::vector<std::pair<std::string, double>> laps;
    double last = 0;
  };

  Impl(const Options& all, const StepBenchRequest& asked) : options(all), request(asked) {
    clock.lap("program");
    if (request.in_channels == 0) request.in_channels = std::max<int64_t>(1, options.model.in_channels);
    device = choose_device(request.device, options.system);
    at::set_num_threads(request.threads > 0 ? request.threads : available_cpus());
    choose_kernels(options.training);
    keep_memory_between_steps(device);
    if (device.is_cuda()) recall_kernel_choices(cache_folder(options.data.cache_dir), {});
    if (request.cudnn_plans > 0) at::globalContext().setBenchmarkLimitCuDNN(request.cudnn_plans);
    if (device.is_cuda()) at::zeros({1}, device);
    wait_for(device);
    clock.lap("device");
    make();
    wait_for(device);
    clock.lap("network");
    note_peak("network");
    step();
    wait_for(device);
    clock.lap("first_step");
    note_peak("first_step");
    first_step_s = clock.last;
    keep_kernel_choices(cache_folder(options.data.cache_dir), {});
    for (int64_t i = 1; i < request.warm_up; ++i) step();
    wait_for(device);
    clock.lap("warm_up");
  }

  void make() {
    const ModelOptions model = resolve_model(options, request.in_channels, {0, 1});
    network = make_network_on(device, model, options.training);
    network->require_divisible(options.data.patch_size);
    loss = std::make_unique<LossSet>(options.loss, options.data, model.out_channels, model.heads);
    optimizer = std::make_unique<Optimizer>(options.training, network->parameters(),
                                            parse_precision(options.training.precision));
    batch = random_batch(options, request.in_channels, network->parameters());
    runner = std::make_unique<StepRunner>(
        StepRunner::Parts{*network, *loss, *optimizer, [this](StageTimes&) { return batch; }},
        StepRunner::Settings{.seed = static_cast<uint64_t>(options.training.seed),
                             .cuda_graph = options.training.cuda_graph,
                             .no_graph = why_not_captured(options)});
  }

  void note_peak(const char* what) {
    const std::optional<double> peak = gpu_peak_gb(device);
    if (!peak) return;
    if (peaks_gb.empty() || peaks_gb.back().first != what) peaks_gb.emplace_back(what, 0);
    peaks_gb.back().second = std::max(peaks_gb.back().second, *peak);
  }

  void step() {
    last = runner->run(steps_done++, options.training.lr);
    if (const std::string said = runner->take_note(); !said.empty()) note = said;
  }

  Options options;
  StepBenchRequest request;
  StartClock clock;
  at::Device device{at::kCPU};
  std::unique_ptr<Network> network;
  std::unique_ptr<LossSet> loss;
  std::unique_ptr<Optimizer> optimizer;
  DeviceBatch batch;
  std::unique_ptr<StepRunner> runner;
  StepReport last;
  int64_t steps_done = 0, steps_timed = 0;
  StageTimes times;
  double first_step_s = 0;
  std::vector<std::pair<std::string, double>> peaks_gb;
  std::string note;
};

StepBench::StepBench(const Options& options, const StepBenchRequest& request)
    : impl_(std::make_unique<Impl>(options, request)) {}

StepBench::~StepBench() = default;

std::vector<double> StepBench::run(int64_t steps) {
  Impl& bench = *impl_;
  const int64_t whole = bench.device.is_cuda() ? steps : 1;
  const int64_t block = std::max<int64_t>(1, bench.request.block > 0 ? bench.request.block : whole);
  bench.runner->take_times();
  std::vector<double> milliseconds;
  for (int64_t done = 0; done < steps; done += block) {
    const int64_t count = std::min(block, steps - done);
    wait_for(bench.device);
    const auto start = Clock::now();
    for (int64_t i = 0; i < count; ++i) bench.step();
    wait_for(bench.device);
    milliseconds.push_back(1e3 * seconds_since(start) / static_cast<double>(count));
  }
  const StageTimes times = bench.runner->take_times();
  for (size_t i = 0; i < times.seconds.size(); ++i) bench.times.seconds[i] += times.seconds[i];
  bench.steps_timed += steps;
  return milliseconds;
}

StepBenchFacts StepBench::facts() {
  Impl& bench = *impl_;
  StepBenchFacts facts;
  facts.first_step_s = bench.first_step_s;
  facts.start_s = bench.clock.laps;
  facts.captured = bench.runner->captured();
  facts.note = bench.note;
  facts.loss = read_step_values(bench.last.values.to(at::kCPU, at::kFloat)).loss;
  const double share = 1e3 / static_cast<double>(std::max<int64_t>(1, bench.steps_timed));
  facts.stage_ms = {{"forward", bench.times[Stage::kForward] * share},
                    {"loss", bench.times[Stage::kLoss] * share},
                    {"backward", bench.times[Stage::kBackward] * share},
                    {"optimizer", bench.times[Stage::kOptimizer] * share}};
  const LayerTable table = bench.network->layer_table(bench.options.data.patch_size, bench.options.data.batch_size);
  Options resolved = bench.options;
  resolved.model.in_channels = bench.request.in_channels;
  const MemoryEstimate estimate = estimate_memory(resolved, bench.network->parameters(), table,
                                                  bench.device.is_cuda() ? MemoryOf::kGpu : MemoryOf::kCpu);
  facts.estimated_gb = static_cast<double>(estimate.total()) / 1e9;
  bench.note_peak("later");
  facts.peaks_gb = bench.peaks_gb;
  for (const auto& [what, peak] : bench.peaks_gb) facts.gpu_peak_gb = std::max(facts.gpu_peak_gb.value_or(0), peak);
  return facts;
}

}  // namespace vox
