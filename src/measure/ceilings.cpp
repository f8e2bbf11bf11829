#include "measure/ceilings.h"

#include <ATen/Parallel.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "base/thread_pool.h"
#include "train/precision.h"

namespace vox {
namespace {

constexpr double kSecondsEach = 0.06;

void wait_for_work(CeilingOf device) {
  if (device == CeilingOf::kGpu) torch::cuda::synchronize();
}

// The quickest of some rounds: other processes only ever slow one down.
double quickest_s(const std::function<void()>& work, CeilingOf device) {
  const int repeats = device == CeilingOf::kGpu ? 4 : 1;  // a GPU is given enough not to wait for the host
  double best = std::numeric_limits<double>::infinity();
  work();  // finds its kernels, touches its memory
  wait_for_work(device);
  const auto begin = Clock::now();
  for (int round = 0; round < 3 || seconds_since(begin) < kSecondsEach; ++round) {
    const auto start = Clock::now();
    for (int i = 0; i < repeats; ++i) work();
    wait_for_work(device);
    best = std::min(best, seconds_since(start) / repeats);
  }
  return best;
}

// Small products do not fill a large machine, large ones are rarely left alone on a busy one: the best of sizes.
double flops_of_products(const at::TensorOptions& options, CeilingOf device) {
  constexpr double kLongEnough = 4e-3;  // seconds
  double best = 0;
  for (int64_t size = device == CeilingOf::kGpu ? 4096 : 256; size <= 8192; size *= 2) {
    const at::Tensor a = at::full({size, size}, 0.5, options), b = at::full({size, size}, 0.25, options);
    at::Tensor product = at::empty({size, size}, options);
    const double seconds = quickest_s([&] { at::mm_out(product, a, b); }, device);
    best = std::max(best, 2 * std::pow(static_cast<double>(size), 3) / seconds);
    if (seconds > kLongEnough) break;
  }
  return best;
}

double bytes_of_copies(const at::TensorOptions& options, CeilingOf device) {
  const int64_t bytes = device == CeilingOf::kGpu ? int64_t{1} << 30 : int64_t{1} << 27;
  const at::Tensor from = at::zeros({bytes / 4}, options.dtype(at::kFloat)), to = at::empty_like(from);
  return 2 * static_cast<double>(bytes) / quickest_s([&] { to.copy_(from); }, device);
}

}  // namespace

Ceilings measure_ceilings(CeilingOf device, const std::string& precision) {
  const at::NoGradGuard no_grad;
  const bool gpu = device == CeilingOf::kGpu;
  const auto options = at::TensorOptions(gpu ? at::kCUDA : at::kCPU).dtype(compute_type(parse_precision(precision)));
  const int threads = at::get_num_threads();
  std::vector<int> thread_counts{threads};
  if (!gpu) thread_counts = {available_cpus(), 1};  // one, because on a busy machine several wait for each other
  Ceilings best;
  try {
    for (const int count : thread_counts) {
      if (!gpu) at::set_num_threads(count);
      best.flops = std::max(best.flops, flops_of_products(options, device));
      best.bytes_per_s = std::max(best.bytes_per_s, bytes_of_copies(options, device));
    }
  } catch (const c10::OutOfMemoryError&) {  // another process has the GPU's memory: what is known stands
  }
  if (!gpu) at::set_num_threads(threads);
  return best;
}

}  // namespace vox
