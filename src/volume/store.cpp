#include "volume/store_impl.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "volume/stage.h"

namespace vox {
namespace {

int64_t bytes_of_gb(double gb) {
  return static_cast<int64_t>(gb * static_cast<double>(int64_t{1} << 30));
}

bool is_one_cases_fault(const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  return known && known->fault() == Fault::kInput && !dynamic_cast<const NotEnoughMemory*>(known);
}

}  // namespace

Store::Impl::Impl(const Dataset& all, const DataOptions& options, ThreadPool& pool, const StoreProgress& progress)
    : dataset(all),
      data(options),
      preprocess(options),
      budget(bytes_of_gb(options.cache_gb),
             [this](int64_t bytes) { return buffers.free_idle() || cache.free_idle(bytes); }),
      shelf(cache_folder(options.cache_dir), loader, most_open_files() / 2),
      readers(most_open_files() / 4) {
  VOX_CHECK(!dataset.cases.empty(), "the dataset is empty: it has no cases");
  if (!data.stage_dir.empty()) stage_dataset(dataset, data.stage_dir, pool, progress);
  open_cases(pool);
  drop_bad_cases();
  tidy_cache_folder();
  require_one_orientation();
  require_equal_channels();
  choose_mode();
  scan_cases(pool, progress);
  drop_bad_cases();
  if (preprocess.zscore_over_dataset()) set_dataset_zscore();
  index_labels();
}

// Runs `work` for every case in parallel. A bad case is noted; where data.on_bad_case says fail, the rest is not begun.
void Store::Impl::each_case(ThreadPool& pool, const std::function<void(size_t)>& work) {
  std::atomic<bool> failed{false};
  pool.for_each(static_cast<int64_t>(dataset.cases.size()), [&](int64_t i) {
    const auto index = static_cast<size_t>(i);
    if (failed) return;
    try {
      work(index);
    } catch (const std::exception& error) {
      if (!is_one_cases_fault(error)) throw;
      problems[index] = error.what();
      if (data.on_bad_case != "skip") failed = true;
    }
  });
}

void Store::Impl::open_cases(ThreadPool& pool) {
  units.resize(dataset.cases.size());
  problems.assign(dataset.cases.size(), "");
  each_case(pool, [&](size_t i) { units[i] = open_case(dataset.cases[i], data, preprocess); });
}

void Store::Impl::tidy_cache_folder() const {
  for (const Unit* unit : all_units()) shelf.mark_used(*unit);
  for (const CaseUnits& item : units) mark_used(shelf.facts_of(scan_key(item)));
  remove_unused(shelf.folder(), data.cache_days);
}

void Store::Impl::require_one_orientation() const {
  if (data.orientation != "keep") return;
  const CaseUnits* first = nullptr;
  for (const CaseUnits& item : units) {
    if (item.orientation.empty()) continue;
    if (!first) first = &item;
    VOX_CHECK(item.orientation == first->orientation, "the dataset's volumes point different ways: case ",
              first->images.front().case_id, " is ", first->orientation, " (", first->images.front().name,
              ") and case ", item.images.front().case_id, " is ", item.orientation, " (", item.images.front().name,
              "); set data.orientation: RAS to turn them all alike");
  }
}

void Store::Impl::require_equal_channels() const {
  for (const CaseUnits& item : units) {
    const CaseUnits& first = units.front();
    VOX_CHECK(item.images.size() == first.images.size(), "case ", first.images.front().case_id, " has ",
              first.images.size(), " image channels but case ", item.images.front().case_id, " has ",
              item.images.size(), " (", item.images.front().name, "); all cases must have the same");
  }
}

std::vector<const Unit*> Store::Impl::all_units() const {
  std::vector<const Unit*> all;
  for (const CaseUnits& item : units) {
    for (const Unit& image : item.images) all.push_back(&image);
    if (item.label) all.push_back(&*item.label);
    if (item.mask) all.push_back(&*item.mask);
  }
  return all;
}

// Whole volumes where all of them fit beside the memory that making one takes for a while.
void Store::Impl::choose_mode() {
  std::map<uint64_t, const Unit*> distinct;
  for (const Unit* unit : all_units()) distinct[unit->key] = unit;
  int64_t total = 0, passing = 0, restored = 0;
  for (const auto& [key, unit] : distinct) {
    total += unit->stored.bytes();
    passing = std::max(passing, unit->peak_bytes - unit->stored.bytes());
  }
  in_memory = data.placement != "disk" && total + passing <= budget.limit();
  if (in_memory) return;
  for (const auto& [key, unit] : distinct) {
    if (unit->direct || shelf.holds(*unit)) continue;
    restored += unit->role == Role::kImage ? unit->stored.bytes() : unit->stored.bytes() / 4;  // labels pack well
  }
  require_free_space(shelf.folder(), restored);
}

void Store::Impl::visit_slabs(const Unit& unit, ThreadPool* pool, const Loader::Slab& slab) {
  if (in_memory) {
    const SharedVolume held = whole_volume(unit, pool);
    slab(0, held->volume.info.extent.z, held->volume.info, held->volume.data.data());
  } else if (unit.direct) {
    loader.each_slab(unit, chunk_shape(unit.raw.extent, unit.raw.dtype).z, pool, slab);
  } else {
    shelf.build(unit, pool, slab);
  }
}

void Store::Impl::scan_one(size_t index, ThreadPool* pool) {
  const CaseUnits& item = units[index];
  const uint64_t key = scan_key(item);
  const fs::path file = shelf.facts_of(key);
  std::optional<CaseScan> kept = load_scan(file, key);
  if (!kept) {
    kept = scan_case(item, data, [&](const Unit& unit, const Loader::Slab& slab) { visit_slabs(unit, pool, slab); });
    try {
      save_scan(file, key, *kept);
    } catch (const Error&) {  // a folder that cannot be written costs the next start time, and this one nothing
    }
  }
  require_known_labels(*kept, item, data);
  scans[index] = std::move(*kept);
  if (in_memory) return;
  const auto build = [&](const Unit& unit) {
    if (!unit.direct && !shelf.holds(unit)) shelf.build(unit, pool, {});
  };
  std::for_each(item.images.begin(), item.images.end(), build);
  if (item.label) build(*item.label);
  if (item.mask) build(*item.mask);
}

void Store::Impl::scan_cases(ThreadPool& pool, const StoreProgress& progress) {
  const auto total = static_cast<int64_t>(dataset.cases.size());
  scans.resize(dataset.cases.size());
  std::mutex mutex;  // guards done and the callback
  int64_t done = 0;
  ThreadPool* inner = total < 2 * pool.size() ? &pool : nullptr;  // few cases: their pieces are shared out too
  each_case(pool, [&](size_t i) {
    scan_one(i, inner);
    std::lock_guard lock(mutex);
    ++done;
    if (progress.update) progress.update("checking cases", done, total, loader.counts().bytes);
  });
}

void Store::Impl::drop_bad_cases() {
  const size_t before = dataset.cases.size();
  std::vector<int64_t> place(before, -1);
  size_t kept = 0;
  for (size_t i = 0; i < before; ++i) {
    if (!problems[i].empty()) {
      const std::string sentence = concat("case ", dataset.cases[i].id, ": ", problems[i]);
      VOX_CHECK(data.on_bad_case == "skip", sentence);
      skipped.push_back({dataset.cases[i].id, problems[i]});
      continue;
    }
    place[i] = static_cast<int64_t>(kept);
    if (kept != i) {
      dataset.cases[kept] = std::move(dataset.cases[i]);
      units[kept] = std::move(units[i]);
      if (!scans.empty()) scans[kept] = std::move(scans[i]);
    }
    ++kept;
  }
  VOX_CHECK(kept > 0, "every one of the ", before, " cases is bad; the first, ", skipped.front().id, ": ",
            skipped.front().reason);
  dataset.cases.resize(kept);
  units.resize(kept);
  scans.resize(scans.empty() ? 0 : kept);
  problems.assign(kept, "");
  for (auto* part : {&dataset.train, &dataset.validation, &dataset.test}) {
    for (int64_t& index : *part) index = place[static_cast<size_t>(index)];
    std::erase(*part, -1);
  }
}

std::vector<ChannelStatistics> Store::Impl::measure_dataset() const {
  std::vector<int64_t> cases = dataset.train;
  if (cases.empty())
    for (size_t i = 0; i < scans.size(); ++i) cases.push_back(static_cast<int64_t>(i));
  std::vector<ChannelStatistics> channels;
  for (size_t channel = 0; channel < units.front().images.size(); ++channel) {
    Moments all;
    for (const int64_t i : cases) all.merge(scans[static_cast<size_t>(i)].moments[channel]);
    channels.push_back({all.mean, all.deviation() > 0 ? all.deviation() : 1});
  }
  return channels;
}

void Store::Impl::set_dataset_zscore() {
  const std::vector<ChannelStatistics>& known = preprocess.known_statistics();
  preprocess.require_known_statistics(static_cast<int64_t>(units.front().images.size()));
  dataset_statistics = known.empty() ? measure_dataset() : known;
  for (size_t channel = 0; channel < dataset_statistics.size(); ++channel)
    if (!preprocess.zscore_over_dataset(static_cast<int64_t>(channel))) dataset_statistics[channel] = {0, 1};
  for (const ChannelStatistics& channel : dataset_statistics)
    dataset_zscore.push_back({1 / channel.deviation, -channel.mean / channel.deviation});
  for (CaseScan& scan : scans) {
    for (size_t channel = 0; channel < dataset_zscore.size(); ++channel)
      scan.moments[channel] =
          scan.moments[channel].mapped(dataset_zscore[channel].factor, dataset_zscore[channel].shift);
    set_channel_facts(scan);
  }
}

void Store::Impl::index_labels() {
  std::set<int64_t> values(data.labels.begin(), data.labels.end());
  for (const CaseScan& scan : scans) {
    std::vector<int64_t> present;
    for (const auto& [value, count] : scan.facts.label_counts) {
      values.insert(value);
      if (value != 0 && value != data.ignore_label) present.push_back(value);
    }
    foreground_labels.push_back(present);
  }
  values.erase(data.ignore_label);
  label_values.assign(values.begin(), values.end());
}

Store::Store(const Dataset& dataset, const DataOptions& data, ThreadPool& pool, const StoreProgress& progress)
    : impl_(std::make_unique<Impl>(dataset, data, pool, progress)) {}
Store::~Store() = default;

const Dataset& Store::dataset() const {
  return impl_->dataset;
}
const std::vector<SkippedCase>& Store::skipped() const {
  return impl_->skipped;
}
const CaseFacts& Store::facts(int64_t case_index) const {
  return impl_->scans[static_cast<size_t>(case_index)].facts;
}
int64_t Store::image_channels() const {
  return static_cast<int64_t>(impl_->units.front().images.size());
}
const std::vector<ChannelStatistics>& Store::dataset_statistics() const {
  return impl_->dataset_statistics;
}
const std::vector<int64_t>& Store::label_values() const {
  return impl_->label_values;
}
const std::vector<int64_t>& Store::foreground_labels(int64_t case_index) const {
  return impl_->foreground_labels[static_cast<size_t>(case_index)];
}

bool Store::foreground_voxel(int64_t case_index, int64_t value, uint64_t random, Extent3* voxel) const {
  const CaseScan& scan = impl_->scans[static_cast<size_t>(case_index)];
  const auto found = scan.foreground.find(value);
  if (found == scan.foreground.end()) return false;
  const int64_t number = found->second[random % found->second.size()];
  const Extent3& extent = scan.facts.extent;
  *voxel = {number / (extent.y * extent.x), number / extent.x % extent.y, number % extent.x};
  return true;
}

}  // namespace vox
