#include "measure/data_timing.h"

#include <algorithm>
#include <memory>

#include "base/hash.h"
#include "base/span.h"
#include "base/thread_pool.h"
#include "pipeline/pipeline.h"
#include "report/machine.h"

namespace vox {
namespace {

constexpr double kBytesPerGib = 1024.0 * 1024.0 * 1024.0;

double resident_gib() {
  return resident_gb() * 1e9 / kBytesPerGib;
}

uint64_t hash_of(const Batch& batch) {
  ContentHash hash;
  for (const auto& [name, array] : batch.arrays) {
    hash.add(name).add(std::span<const std::byte>(array.data, static_cast<size_t>(array.bytes())));
  }
  for (const SampleInfo& sample : batch.samples) hash.add(static_cast<uint64_t>(sample.sample));
  return hash.value();
}

PipelineOptions pipeline_options(const Options& options, const DataBenchRequest& request) {
  const int64_t effective = options.data.batch_size * options.training.accumulate;
  return {.seed = static_cast<uint64_t>(options.training.seed),
          .first_sample = request.first_step * effective,
          .batch_size = options.data.batch_size,
          .batches = request.batches + request.warm_up,
          .threads = request.threads,
          .prefetch = static_cast<int>(options.data.prefetch_factor)};
}

}  // namespace

DataBenchResult bench_data(const Options& options, const DataBenchRequest& request, const StoreProgress& progress) {
  DataBenchResult result;
  const auto opening = Clock::now();
  auto pool = std::make_unique<ThreadPool>(request.threads);
  const Dataset dataset =
      make_dataset(options.data, options.training.fold, static_cast<uint64_t>(options.training.seed));
  const auto store = std::make_shared<Store>(dataset, options.data, *pool, progress);
  result.open_s = seconds_since(opening);
  pool.reset();  // the pipeline's threads are all there are from here on

  Pipeline pipeline(store, options.data, options.augmentation, pipeline_options(options, request));
  ContentHash all;
  Batch batch;
  int64_t count = 0;
  auto last = Clock::now(), start = last;
  while (pipeline.next(batch)) {
    const auto now = Clock::now();
    if (count >= request.warm_up)
      result.batch_ms.push_back(std::chrono::duration<double, std::milli>(now - last).count());
    if (count < request.warm_up) start = now;
    last = now;
    if (request.hash) {
      result.batch_hashes.push_back(hash_of(batch));
      all.add(result.batch_hashes.back());
    }
    result.rss_end_gib = resident_gib();
    result.rss_peak_gib = std::max(result.rss_peak_gib, result.rss_end_gib);
    if (++count == (request.batches + request.warm_up) / 4) result.rss_quarter_gib = result.rss_end_gib;
  }
  const double seconds = std::chrono::duration<double>(last - start).count();
  result.patches_per_s = static_cast<double>(request.batches * options.data.batch_size) / seconds;
  result.hash = all.value();
  result.counts = store->counts();
  return result;
}

}  // namespace vox
