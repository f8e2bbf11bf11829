#include "measure/step_timing.h"

#include <ATen/Parallel.h>
#include <torch/torch.h>

#include <span>

#include "base/random.h"
#include "base/span.h"
#include "base/thread_pool.h"
#include "train/learner.h"
#include "train/step.h"

namespace vox {
namespace {

DeviceBatch random_batch(const Options& options, int64_t channels, const at::Device& device) {
  const Extent3& patch = options.data.patch_size;
  const int64_t batch = options.data.batch_size;
  const at::Tensor image = at::empty({batch, channels, patch.z, patch.y, patch.x});
  const at::Tensor label = at::empty({batch, 1, patch.z, patch.y, patch.x}, at::kByte);
  Random random(static_cast<uint64_t>(options.training.seed), 0, kSynthStream);
  for (float& value : std::span(image.data_ptr<float>(), static_cast<size_t>(image.numel())))
    value = static_cast<float>(random.normal());
  for (uint8_t& value : std::span(label.data_ptr<uint8_t>(), static_cast<size_t>(label.numel())))
    value = random.chance(0.3) ? 1 : 0;
  DeviceBatch result;
  result.image = image.to(device);
  result.targets.label = options.data.target == "regression" ? label.to(device, at::kFloat) : label.to(device);
  result.samples.resize(static_cast<size_t>(batch));
  return result;
}

}  // namespace

StepBenchResult bench_step(const Options& options, const StepBenchRequest& request) {
  const at::Device device = choose_device(request.device, options.system);
  at::set_num_threads(request.threads > 0 ? request.threads : available_cpus());
  ModelOptions model = resolve_model(options, request.in_channels, {0, 1});
  const std::unique_ptr<Network> network = make_network_on(device, model, options.training);
  network->require_divisible(options.data.patch_size);
  const LossSet loss(options.loss, options.data, model.out_channels, model.heads);
  Optimizer optimizer(options.training, network->parameters(), parse_precision(options.training.precision));
  const DeviceBatch batch = random_batch(options, request.in_channels, device);
  StepRunner runner({*network, loss, optimizer, [&](StageTimes&) { return batch; }},
                    {.seed = static_cast<uint64_t>(options.training.seed)});
  StepBenchResult result;
  for (int64_t step = 0; step < request.warm_up + request.steps; ++step) {
    if (step == request.warm_up) runner.take_times();
    const auto start = Clock::now();
    const StepReport report = runner.run(step, options.training.lr);
    result.loss = read_step_values(report.values.to(at::kCPU, at::kFloat)).loss;
    if (step >= request.warm_up) result.step_ms.push_back(1e3 * seconds_since(start));
  }
  const StageTimes times = runner.take_times();
  const double share = 1e3 / static_cast<double>(request.steps);
  result.stage_ms = {{"forward", times[Stage::kForward] * share},
                     {"loss", times[Stage::kLoss] * share},
                     {"backward", times[Stage::kBackward] * share},
                     {"optimizer", times[Stage::kOptimizer] * share}};
  return result;
}

}  // namespace vox
