#include "train/learner.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/Parallel.h>
#include <malloc.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdlib>

#include "base/span.h"
#include "base/text.h"
#include "config/device_name.h"
#include "kernels/cuda.h"
#include "nets/untold.h"
#include "nets/weights.h"
#include "ops/kernel_choice.h"
#include "train/step.h"
#include "train/team.h"

namespace vox {
namespace {

bool wants_classes(const LossOptions& loss) {
  return std::any_of(loss.terms.begin(), loss.terms.end(),
                     [](const LossTerm& term) { return find_loss(term.name).needs_classes; });
}

// One channel tells 0 from everything else.
bool tells_foreground(const std::vector<int64_t>& values) {
  return values.size() < 2 || (values.size() == 2 && std::find(values.begin(), values.end(), 0) != values.end());
}

int64_t out_channels(const Options& options, const std::vector<int64_t>& label_values) {
  if (options.data.target == "regression") return 1;
  std::vector<int64_t> named = options.data.labels;
  std::erase(named, options.data.ignore_label);
  int64_t largest = 1;
  for (const int64_t value : label_values) largest = std::max(largest, value);
  if (tells_foreground(named.empty() ? label_values : named) && !wants_classes(options.loss)) return 1;
  return named.empty() ? largest + 1 : static_cast<int64_t>(named.size());
}

bool half_precision(const TrainingOptions& training) {
  return compute_type(parse_precision(training.precision)) != at::kFloat;
}

int64_t next_smaller_divisor(int64_t batch, int64_t micro) {
  for (int64_t candidate = micro / 2; candidate >= 1; --candidate)
    if (batch % candidate == 0) return candidate;
  return 0;
}

bool has_masks(const Dataset& dataset) {
  return std::any_of(dataset.train.begin(), dataset.train.end(),
                     [&](int64_t index) { return !dataset.cases[static_cast<size_t>(index)].mask.empty(); });
}

std::string minds_smaller_parts(const WarmUpRequest& request) {  // empty: nothing does
  const Learner& learner = request.learner;
  if (learner.network->parameters().has_running_statistics()) return "batch norm";
  return learner.loss->batch_wise(has_masks(request.store->dataset())) ? "a batch-wise loss" : "";
}

void require_shrinkable(const WarmUpRequest& request, int64_t micro) {
  const Options& options = request.options;
  const std::string advice =
      "; use a smaller data.batch_size or data.patch_size, training.precision=bf16-mixed, or "
      "model.use_checkpoint=true";
  VOX_CHECK(micro > 1, "one sample of patch ", options.data.patch_size, " does not fit into the memory of the GPU",
            advice);
  VOX_CHECK(options.training.on_oom != "fail", "a batch of ", micro, " does not fit into the memory of the GPU",
            advice);
  if (options.training.on_oom == "shrink") return;
  const std::string minds = minds_smaller_parts(request);
  VOX_CHECK(minds.empty(), "a batch of ", micro, " does not fit into the memory of the GPU, and ", minds,
            " would learn otherwise from a smaller one", advice, ", or accept it with training.on_oom=shrink");
}

// On a GPU nobody would notice: there a class beyond the channels is taken for the last one.
void require_channels_for(const Store& store, const LossSet& loss) {
  loss.require_background(store.label_values());
  const Dataset& dataset = store.dataset();
  for (const std::vector<int64_t>* part : {&dataset.train, &dataset.validation})
    for (const int64_t index : *part) {
      const Case& one = dataset.cases[static_cast<size_t>(index)];
      if (!one.mask.empty()) continue;  // such a voxel may be one that does not count
      try {
        loss.require_channels(store.foreground_labels(index));
      } catch (const Error& error) {
        throw with_context(concat("case ", one.id), error);
      }
    }
}

constexpr const char* kBuiltForTheCpu =
    "this program was built for the CPU alone (docs/gpu.md says how to build it for a GPU)";

}  // namespace

bool leaves_a_gpu_alone(const SystemOptions& system) {
  return !cuda::kCompiledIn && system.num_gpus != 0 && torch::cuda::is_available();
}

std::string missing_gpus(const SystemOptions& system) {
  const std::string wanted = concat("system.num_gpus is ", system.num_gpus, ", but ");
  const bool available = cuda::kCompiledIn && torch::cuda::is_available();
  if (system.num_gpus >= 1 && !available)
    return wanted + (cuda::kCompiledIn ? "there is no GPU here" : kBuiltForTheCpu) + "; set it to 0";
  if (system.num_gpus > 1 && system.num_gpus > torch::cuda::device_count())
    return concat(wanted, "there are ", int{torch::cuda::device_count()}, " GPUs here");
  return "";
}

at::Device choose_device(const std::string& name, const SystemOptions& system) {
  ops::set_kernel_arch(system.kernel_arch);
  const bool available = cuda::kCompiledIn && torch::cuda::is_available();
  if (name.empty()) {
    const std::string missing = missing_gpus(system);
    VOX_CHECK(missing.empty(), missing);
    return system.num_gpus != 0 && available ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU);
  }
  if (name == "cpu") return at::Device(at::kCPU);
  VOX_CHECK(is_device_name(name), "--device is \"", name, "\"; it is cpu, cuda or cuda:N");
  VOX_CHECK(cuda::kCompiledIn, "--device ", name, ": ", kBuiltForTheCpu, "; use --device cpu");
  VOX_CHECK(available, "--device ", name, ": there is no ", sees_one_gpu() ? "such " : "",
            "GPU here, or torch was built without CUDA; use --device cpu");
  const int index = sees_one_gpu() ? 0 : gpu_number(name);
  VOX_CHECK(index < torch::cuda::device_count(), "--device ", name, ": there are ", int{torch::cuda::device_count()},
            " GPUs, counted from 0");
  return at::Device(at::kCUDA, static_cast<at::DeviceIndex>(index));
}

void choose_kernels(const TrainingOptions& training) {
  at::globalContext().setDeterministicCuDNN(training.deterministic);
  at::globalContext().setDeterministicAlgorithms(training.deterministic, /*warn_only=*/true);
  at::globalContext().setBenchmarkCuDNN(!training.deterministic);
  // Read when it starts. Otherwise 8 MiB for each thread and stream, a quarter of what torch gives it on Hopper.
  setenv("CUBLAS_WORKSPACE_CONFIG", training.deterministic ? ":4096:8" : ":4096:2:16:8", /*overwrite=*/0);
  ops::set_kernel_timing(training.deterministic ? ops::KernelTiming::kFixed : ops::KernelTiming::kOncePerShape);
}

void use_threads(int compute) {
  at::set_num_threads(compute);
  static const bool once = [] {
    at::set_num_interop_threads(1);
    return true;
  }();
  static_cast<void>(once);
}

void keep_memory_between_steps(const at::Device& device) {
  if (!device.is_cpu()) return;
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the most that glibc takes; larger blocks go back at once
  mallopt(M_TRIM_THRESHOLD, 512 << 20);
}

ModelOptions resolve_model(const Options& options, int64_t image_channels, const std::vector<int64_t>& label_values) {
  ModelOptions model = options.model;
  VOX_CHECK(model.in_channels == 0 || model.in_channels == image_channels, "model.in_channels is ", model.in_channels,
            " but the images have ", image_channels, " channels; leave it out to take it from the data");
  model.in_channels = image_channels;
  int64_t of_heads = 0;
  for (const HeadOptions& head : model.heads) of_heads += head.channels;
  VOX_CHECK(of_heads == 0 || model.out_channels == 0 || model.out_channels == of_heads, "model.out_channels is ",
            model.out_channels, " but model.heads have ", of_heads, " channels together; leave one of them out");
  if (of_heads > 0) model.out_channels = of_heads;
  if (model.out_channels == 0) model.out_channels = out_channels(options, label_values);
  return model;
}

std::vector<std::string> check_loss_terms(const Options& options) {
  const ModelOptions& model = options.model;
  constexpr int64_t kMostTried = 256;  // channels, where the data will say how many there are
  const int64_t first = model.out_channels > 0 ? model.out_channels : 1;
  const int64_t last = model.out_channels > 0 ? model.out_channels : kMostTried;
  std::optional<Error> wrong;
  for (int64_t channels = first; channels <= last; ++channels) {
    try {
      const LossSet loss(options.loss, options.data, channels, model.heads);
      const std::vector<std::string> names = loss.term_names();
      for (size_t i = 0; i < names.size(); ++i)
        VOX_CHECK(loss.delay(i) == 0 || team_size(options.system) == 1, "loss.terms: ", names[i],
                  " has a delay, and system.num_gpus is above 1: checkpoints keep what one process finds; set it to 0");
      return names;
    } catch (const Error& error) {
      if (!wrong) wrong = error;
    }
  }
  throw *wrong;
}

std::unique_ptr<Network> make_network_on(const at::Device& device, const ModelOptions& model,
                                         const TrainingOptions& training) {
  const Precision precision = parse_precision(training.precision);
  apply_precision(precision);
  std::unique_ptr<Network> network = make_network(model, static_cast<uint64_t>(training.seed));
  network->parameters().to(device);
  network->parameters().set_compute_type(compute_type(precision));
  // Tensor cores want the channels last; the CPU's kernels choose for themselves.
  if (device.is_cuda() && half_precision(training)) network->parameters().to(at::MemoryFormat::ChannelsLast3d);
  return network;
}

Learner make_learner(const Options& options, const Store& store, const at::Device& device) {
  Learner learner;
  learner.model = resolve_model(options, store.image_channels(), store.label_values());
  learner.network = make_network_on(device, learner.model, options.training);
  learner.network->require_divisible(options.data.patch_size);
  if (const std::string& path = options.model.weights; !path.empty()) {
    const SafetensorsFile file(path);
    const LoadReport report = load_weights(*learner.network, file, "", Missing::kKeep);
    std::vector<std::string> notes{partial_note(report, *learner.network, path),
                                   other_function_note(file.metadata(), learner.model, path)};
    std::erase(notes, "");
    learner.partial_weights = join(notes, ". ");
  }
  learner.loss = std::make_unique<LossSet>(options.loss, options.data, learner.model.out_channels, learner.model.heads);
  require_channels_for(store, *learner.loss);
  learner.optimizer = std::make_unique<Optimizer>(options.training, learner.network->parameters(),
                                                  parse_precision(options.training.precision));
  return learner;
}

std::unique_ptr<Pipeline> training_pipeline(const std::shared_ptr<Store>& store, const Options& options, int64_t first,
                                            int64_t micro_batch, int threads, GatherOn gather_on,
                                            const BoxMemory& box_memory, Place place) {
  const PipelineOptions pipeline{.seed = static_cast<uint64_t>(options.training.seed),
                                 .first_sample = first + place.index * micro_batch,
                                 .batch_size = micro_batch,
                                 .stride = place.count * micro_batch,
                                 .threads = threads,
                                 .prefetch = static_cast<int>(std::max<int64_t>(1, options.data.prefetch_factor)),
                                 .targets = targets_of(options.loss),
                                 .gather_on = gather_on,
                                 .box_memory = box_memory};
  return std::make_unique<Pipeline>(store, options.data, options.augmentation, pipeline);
}

WarmUp warm_up(const WarmUpRequest& request) {
  WarmUp result{.micro_batch = request.micro_batch, .step_s = 0, .shrunk = {}};
  const int64_t batch = request.options.data.batch_size;
  while (true) {
    const auto pipeline = training_pipeline(request.store, request.options, request.first_sample, result.micro_batch,
                                            request.data_threads);
    StepRunner runner({*request.learner.network, *request.learner.loss, *request.learner.optimizer,
                       source_of(*pipeline, request.device)},
                      {.seed = static_cast<uint64_t>(request.options.training.seed)});
    try {
      std::vector<double> seconds;
      Batch host;
      for (int round = 0; round <= request.rounds && pipeline->next(host); ++round) {
        const auto start = Clock::now();
        const std::vector<int64_t> steps =
            round == 0 ? request.learner.loss->fullest_steps(request.end_step) : std::vector<int64_t>{0};
        for (const int64_t step : steps) runner.rehearse(to_device(host, request.device), step);
        if (round > 0) seconds.push_back(seconds_since(start));  // the first one also makes plans and buffers
      }
      std::nth_element(seconds.begin(), seconds.begin() + static_cast<int64_t>(seconds.size()) / 2, seconds.end());
      const int64_t micro_steps = batch / result.micro_batch * request.options.training.accumulate;
      result.step_s = seconds[seconds.size() / 2] * static_cast<double>(micro_steps);
      return result;
    } catch (const c10::OutOfMemoryError&) {
      require_shrinkable(request, result.micro_batch);
      const std::string minds = minds_smaller_parts(request);
      result.micro_batch = next_smaller_divisor(batch, result.micro_batch);
      result.shrunk =
          concat("a batch of ", batch, " does not fit into the memory of the GPU: it is now made of ",
                 batch / result.micro_batch, " parts of ", result.micro_batch, " whose gradients are summed; ",
                 minds.empty() ? "the result is the same" : minds + " learns otherwise from these");
    }
    request.learner.network->parameters().zero_grads();
    if (!request.device.is_cpu()) at::getDeviceAllocator(request.device.type())->emptyCache();
  }
}

std::optional<double> gpu_peak_gb(const at::Device& device) {
  if (device.is_cpu()) return std::nullopt;
  auto* allocator = at::getDeviceAllocator(device.type());
  const auto stats = allocator->getDeviceStats(device.index());
  allocator->resetPeakStats(device.index());
  return static_cast<double>(stats.allocated_bytes[0].peak) / 1e9;
}

}  // namespace vox
