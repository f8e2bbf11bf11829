// Volumes in their stored type, within data.cache_gb, shared by all threads. Where everything fits, whole volumes are
// kept; where it does not, each volume is re-stored once in a content-keyed cache folder, as chunks that a patch reads
// alone. Preprocessing happens once per volume, before either.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/volume.h"
#include "config/options.h"
#include "volume/dataset.h"

namespace vox {

class ThreadPool;

enum class Role { kImage, kLabel, kMask };

// A part of one channel of one volume, kept alive while this is. It must go before its Store does.
struct Block {
  VolumeView view;  // covers at least what was asked for
  std::shared_ptr<const void> owner;
};

struct CaseFacts {  // from headers and one scan, made once per case and kept in the cache folder
  Extent3 extent;
  int64_t channels = 1;  // of the image
  Spacing3 spacing;
  std::vector<double> channel_mean, channel_std, channel_min, channel_max;
  std::vector<std::pair<int64_t, int64_t>> label_counts;  // value, voxels
};

struct StoreCounts {
  int64_t hits = 0, misses = 0;  // of blocks
  int64_t volumes_decoded = 0;
  int64_t bytes_read = 0;  // from files
  int64_t resident_bytes = 0, resident_peak = 0;
  double decode_s = 0, preprocess_s = 0, wait_s = 0;  // summed over threads
  int64_t volume_bytes = 0;                           // of all volumes together, as they are stored
  bool in_memory = false;                             // whole volumes are kept: all of them fit
};

struct SkippedCase {
  std::string id, reason;
};

struct StoreProgress {  // called from one thread at a time
  std::function<void(const std::string& what, int64_t done, int64_t total, int64_t bytes)> update;
};

struct ChannelStatistics {
  double mean = 0, deviation = 1;
};

class Store {
 public:
  // Opens every case, checks it (shapes, labels, NaN), computes facts and the foreground index in parallel, and skips
  // or fails as data.on_bad_case says.
  Store(const Dataset& dataset, const DataOptions& data, ThreadPool& pool, const StoreProgress& progress = {});
  ~Store();

  const Dataset& dataset() const;  // less the skipped cases
  const std::vector<SkippedCase>& skipped() const;
  const CaseFacts& facts(int64_t case_index) const;
  int64_t image_channels() const;
  int64_t stored_bytes(int64_t case_index) const;  // of its volumes together, at most
  // What zscore with scope: dataset subtracts and divides by, per channel; empty where there is no such step.
  const std::vector<ChannelStatistics>& dataset_statistics() const;
  const std::vector<int64_t>& label_values() const;  // over all cases, the ignore label left out

  // The voxels of `box` (clipped to the volume). Any thread; one decode however many ask.
  Block fetch(int64_t case_index, Role role, int64_t channel, const Box3& box);

  // A voxel with label `value`, by `pick` in 0 .. count-1 from the kept list (at most 10,000 a label and case, spread
  // evenly over the volume); false where the case has none.
  bool foreground_voxel(int64_t case_index, int64_t value, uint64_t random, Extent3* voxel) const;
  const std::vector<int64_t>& foreground_labels(int64_t case_index) const;  // values present, 0 and ignore left out

  StoreCounts counts() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace vox
