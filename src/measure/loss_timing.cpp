#include "measure/loss_timing.h"

#include <ATen/Parallel.h>
#include <malloc.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "base/random.h"
#include "base/span.h"
#include "base/thread_pool.h"
#include "kernels/cuda.h"
#include "losses/loss.h"
#include "targets/target.h"
#include "train/device_batch.h"
#include "train/graph_step.h"
#include "train/learner.h"

namespace vox {
namespace {

// Sheets that curve through the patch, a tenth of it foreground, as papyrus is.
at::Tensor sheet_labels(const LossBenchRequest& request) {
  const Extent3& size = request.size;
  const at::Tensor labels = at::empty({request.batch, 1, size.z, size.y, size.x}, at::kByte);
  uint8_t* out = labels.data_ptr<uint8_t>();
  for (int64_t n = 0; n < request.batch; ++n)
    for (int64_t z = 0; z < size.z; ++z)
      for (int64_t y = 0; y < size.y; ++y)
        for (int64_t x = 0; x < size.x; ++x) {
          const double bend =
              6 * std::sin(0.05 * static_cast<double>(z + 3 * n)) + 5 * std::sin(0.04 * static_cast<double>(x));
          const double place = std::fmod(static_cast<double>(y) + bend + 200.0, 30.0);
          *out++ = place < 3 ? 1 : 0;
        }
  return labels;
}

at::Tensor random_values(at::IntArrayRef sizes, uint64_t seed, double spread) {
  const at::Tensor values = at::empty(sizes);
  Random random(seed, 0, kSynthStream);
  float* const data = values.data_ptr<float>();
  for (int64_t i = 0; i < values.numel(); ++i) data[i] = static_cast<float>(spread * random.normal());
  return values;
}

at::Tensor make_extra(const TargetOptions& options, const at::Tensor& labels, const Extent3& extent) {
  const std::unique_ptr<Target> target = make_target(options);
  const at::ScalarType type = scalar_type(target->dtype());
  const at::Tensor made = at::empty({labels.size(0), target->channels(), extent.z, extent.y, extent.x}, type);
  for (int64_t n = 0; n < labels.size(0); ++n) {
    const LabelPatch patch{
        .labels = labels[n].data_ptr<uint8_t>(), .extent = extent, .spacing = {}, .ignore_label = -1};
    target->make(patch, static_cast<std::byte*>(made[n].data_ptr()));
  }
  return made;
}

Targets synthetic_targets(const LossBenchRequest& request, const LossOptions& loss, bool regression,
                          const at::Device& device) {
  const Extent3& size = request.size;
  Targets targets;
  const at::Tensor labels = sheet_labels(request);
  targets.label = labels.to(device);
  if (regression)
    targets.label =
        random_values({request.batch, request.channels, size.z, size.y, size.x}, request.seed + 1, 1).to(device);
  for (const TargetOptions& options : targets_of(loss))
    targets.extra[options.name] = make_extra(options, labels, size).to(device);
  return targets;
}

int64_t status_bytes(const std::string& key) {  // of /proc/self/status: "VmHWM:"
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    std::istringstream in(line);
    std::string word;
    int64_t kilobytes = 0;
    if (in >> word >> kilobytes && word == key) return kilobytes * 1024;
  }
  return 0;
}

// Most memory that `work` holds beside what was held before it.
int64_t extra_bytes_of(const at::Device& device, const std::function<void()>& work) {
  if (device.is_cuda()) {
    gpu_peak_gb(device);  // begins a new peak, at what is held now
    const double before = gpu_peak_gb(device).value_or(0);
    work();
    return static_cast<int64_t>(1e9 * std::max(0.0, gpu_peak_gb(device).value_or(0) - before));
  }
  malloc_trim(0);                               // what was freed must not hide what is asked for
  std::ofstream("/proc/self/clear_refs") << 5;  // the peak begins anew
  const int64_t before = status_bytes("VmRSS:");
  work();
  return std::max<int64_t>(0, status_bytes("VmHWM:") - before);
}

void finish(const at::Device& device) {
  if (device.is_cuda()) torch::cuda::synchronize(device.index());
}

void replay(const LossSet& set, const at::Tensor& logits, const Targets& targets, LossBenchResult& result) {
  if constexpr (cuda::kCompiledIn) {
    result.eager_ms = result.both_ms;
    if (set.reads_back(0)) return;
    const int64_t repeats = static_cast<int64_t>(result.both_ms.size());
    result.forward_ms = replayed_milliseconds(logits, repeats, [&] { set.compute({logits}, targets, 0); });
    result.both_ms = replayed_milliseconds(
        logits, repeats, [&] { torch::autograd::grad({set.compute({logits}, targets, 0).total}, {logits}); });
  }
}

}  // namespace

LossBenchResult bench_loss(const LossBenchRequest& request) {
  const auto& entries = all_losses();
  const bool regression = std::any_of(request.terms.begin(), request.terms.end(), [&](const LossTerm& term) {
    const auto entry =
        std::find_if(entries.begin(), entries.end(), [&](const LossEntry& one) { return one.name == term.name; });
    return entry != entries.end() && entry->regression && term.target.empty();
  });
  at::set_num_threads(request.threads > 0 ? request.threads : available_cpus());
  const at::Device device = choose_device(request.device, SystemOptions{});
  LossOptions loss;
  loss.terms = request.terms;
  for (LossTerm& term : loss.terms) term.every = 1;
  DataOptions data;
  data.target = regression ? "regression" : "segmentation";
  const LossSet set(loss, data, request.channels);
  const Targets targets = synthetic_targets(request, loss, regression, device);
  const Extent3& size = request.size;
  const at::Tensor logits = random_values({request.batch, request.channels, size.z, size.y, size.x}, request.seed, 2)
                                .to(device)
                                .requires_grad_(true);
  LossBenchResult result;
  double forward_ms = 0;
  const auto once = [&] {
    const Clock::time_point start = Clock::now();
    const at::Tensor total = set.compute({logits}, targets, 0).total;
    finish(device);
    forward_ms = 1e3 * seconds_since(start);
    torch::autograd::grad({total}, {logits});
    finish(device);
    return total;
  };
  result.value = once().item<double>();
  result.extra_bytes = extra_bytes_of(device, [&] { once(); });
  for (int64_t i = 1; i < request.warm_up; ++i) once();
  for (int64_t i = 0; i < request.repeats; ++i) {
    const Clock::time_point start = Clock::now();
    once();
    result.both_ms.push_back(1e3 * seconds_since(start));
    result.forward_ms.push_back(forward_ms);
  }
  if (device.is_cuda()) replay(set, logits, targets, result);
  return result;
}

}  // namespace vox
