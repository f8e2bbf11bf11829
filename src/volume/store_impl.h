// What the store is made of. store.cpp prepares it, fetch.cpp serves blocks from it.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <vector>

#include "io/format.h"
#include "volume/budget.h"
#include "volume/buffer_pool.h"
#include "volume/cache.h"
#include "volume/facts.h"
#include "volume/handles.h"
#include "volume/loader.h"
#include "volume/preprocess.h"
#include "volume/scan.h"
#include "volume/shelf.h"
#include "volume/store.h"
#include "volume/unit.h"

namespace vox {

struct ChannelMap {  // z-score over the dataset: value * factor + shift
  double factor = 1, shift = 0;
};

struct Store::Impl {
  Impl(const Dataset& all, const DataOptions& options, ThreadPool& pool, const StoreProgress& progress);

  // Preparing.
  void open_cases(ThreadPool& pool);
  void tidy_cache_folder() const;
  void require_one_orientation() const;
  void require_equal_channels() const;
  void choose_mode();
  void scan_cases(ThreadPool& pool, const StoreProgress& progress);
  void scan_one(size_t index, ThreadPool* pool);
  void visit_slabs(const Unit& unit, ThreadPool* pool, const Loader::Slab& slab);
  void each_case(ThreadPool& pool, const std::function<void(size_t)>& work);
  void drop_bad_cases();
  void set_dataset_zscore();
  std::vector<ChannelStatistics> measure_dataset() const;
  void index_labels();
  std::vector<const Unit*> all_units() const;

  // Serving.
  const Unit& unit_of(int64_t case_index, Role role, int64_t channel) const;
  Block fetch(const Unit& unit, const Box3& box);
  Block read_block(const Unit& unit, const Box3& box);
  Block chunk_block(const Unit& unit, const Box3& box);
  SharedVolume whole_volume(const Unit& unit, ThreadPool* pool);
  SharedVolume load_volume(const Unit& unit, ThreadPool* pool);
  SharedVolume promote(const Unit& unit);
  SharedVolume load_from_chunks(const Unit& unit, Reservation bytes);
  template <class Result>
  Result with_rebuild(const Unit& unit, const std::function<Result()>& read);

  Dataset dataset;
  DataOptions data;
  Preprocess preprocess;
  MemoryBudget budget;
  VolumeCache cache;
  BufferPool buffers{budget};
  Loader loader{preprocess, budget, buffers};
  ChunkShelf shelf;
  Handles<const VolumeReader> readers;

  bool in_memory = true;  // whole volumes; else boxes from files
  std::vector<CaseUnits> units;
  std::vector<CaseScan> scans;
  std::vector<std::string> problems;  // of each case; empty: none
  std::vector<SkippedCase> skipped;
  std::vector<ChannelMap> dataset_zscore;             // per channel; empty: none
  std::vector<ChannelStatistics> dataset_statistics;  // that it comes from
  std::vector<int64_t> label_values;
  std::vector<std::vector<int64_t>> foreground_labels;

  std::atomic<int64_t> hits{0}, misses{0}, block_bytes{0};
  std::mutex rebuilding;  // one damaged file at a time
};

}  // namespace vox
