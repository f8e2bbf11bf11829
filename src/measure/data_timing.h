// The data path alone: batches of a recipe through store, gather and pipeline, without a network.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/options.h"
#include "volume/store.h"

namespace vox {

struct DataBenchRequest {
  int64_t batches = 50;
  int64_t first_step = 0;
  int64_t warm_up = 2;  // batches not timed
  int threads = 1;
  bool hash = false;  // of every byte of every batch
};

struct DataBenchResult {
  std::vector<double> batch_ms;  // from one batch to the next, as a consumer that does nothing sees it
  double patches_per_s = 0;
  double open_s = 0;  // dataset, facts and store
  uint64_t hash = 0;
  std::vector<uint64_t> batch_hashes;
  double rss_peak_gib = 0, rss_quarter_gib = 0, rss_end_gib = 0;  // resident memory: ever, after a quarter, at the end
  StoreCounts counts;
};

DataBenchResult bench_data(const Options& options, const DataBenchRequest& request, const StoreProgress& progress = {});

}  // namespace vox
