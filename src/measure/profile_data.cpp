// The loader alone: batches as a trainer that needs no time would take them.
#include <algorithm>
#include <memory>

#include "base/thread_pool.h"
#include "losses/loss.h"
#include "measure/doctor_files.h"
#include "measure/machine_load.h"
#include "measure/profile.h"
#include "measure/profile_run.h"
#include "pipeline/pipeline.h"
#include "report/machine.h"
#include "train/learner.h"
#include "train/threads.h"

namespace vox {
namespace {

std::shared_ptr<Store> open_store(const Options& options, int threads) {
  ThreadPool pool(threads);
  const Dataset dataset =
      make_dataset(options.data, options.training.fold, static_cast<uint64_t>(options.training.seed));
  return std::make_shared<Store>(dataset, options.data, pool);
}

}  // namespace

StepRecord record_data(const ProfileRequest& request) {
  const Options& options = request.config.options;
  const bool gpu = choose_device(request.device, options.system).is_cuda();
  const ThreadPlan threads = plan_threads(options, gpu ? ComputeOn::kGpu : ComputeOn::kCpu);
  const std::shared_ptr<Store> store = open_store(options, threads.cpus);
  const auto pipeline = training_pipeline(store, options, 0, options.data.batch_size, threads.data);
  StepRecord record{.micro_batch = options.data.batch_size, .accumulation = options.training.accumulate};
  record.data_threads = threads.data;
  record.cpus = std::min(available_cpus(), threads.cpus);
  record.most_data_threads = most_data_threads(options, gpu ? ComputeOn::kGpu : ComputeOn::kCpu);
  record.warm_up = std::max<int64_t>(3, options.data.prefetch_factor + 2);
  if (request.warm_cache) warm_store(*store, 2 * request.most_seconds);
  const auto begin = Clock::now();
  auto last = begin, measure_begin = begin;
  double cpu_ms = 0;
  std::vector<double> step_ms;
  Batch batch;
  for (int64_t step = 0;; ++step) {
    if (step == record.warm_up) {
      record.before = store->counts();
      cpu_ms = process_cpu_ms();
      start_recording();
      measure_begin = last = Clock::now();
    }
    for (int64_t micro = 0; micro < record.accumulation; ++micro) pipeline->next(batch);
    const auto now = Clock::now();
    if (step >= record.warm_up) {
      record_span(kStepSpan, last, now);
      step_ms.push_back(1e3 * std::chrono::duration<double>(now - last).count());
    }
    last = now;
    const auto count = static_cast<int64_t>(step_ms.size());
    const bool late = seconds_since(begin) > request.most_seconds && count >= 2;
    if (request.steps ? count >= *request.steps : late || enough_steps(step_ms, seconds_since(measure_begin))) break;
  }
  stop_recording();
  record.steps = static_cast<int64_t>(step_ms.size());
  record.wall_ms = 1e3 * seconds_since(measure_begin);
  record.cpu_ms = process_cpu_ms() - cpu_ms;
  record.after = store->counts();
  record.spare_bytes = spare_memory({});
  record.spans = take_spans();
  record.sums = sum_spans(record.spans);
  record.rss_gb = resident_gb();
  record.rss_peak_gb = peak_resident_gb();
  return record;
}

}  // namespace vox
