// One pool of threads serves both stages: a thread fills a sample that was read, or else reads the next one. So a
// thread that waits for the disk costs no other thread its work, and any number of threads keeps both stages busy.
// Samples are begun in order and belong to a slot from the start; a batch is complete when its last sample is.
#include "pipeline/pipeline.h"

#include <atomic>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "base/span.h"
#include "base/start_thread.h"
#include "pipeline/sample.h"
#include "pipeline/slots.h"
#include "volume/budget.h"

namespace vox {
namespace {

// Seconds without any memory given back, from thread to thread more, so that one gives way before the next one would;
// and for the only one that reads.
constexpr double kPatience_s = 1, kMorePatience_s = 0.25, kLastPatience_s = 60;

struct BatchInWork {
  int64_t number = 0;
  std::shared_ptr<Slot> slot;
  std::vector<SampleInfo> samples;
  std::vector<DeviceSample> on_device;
  int64_t begun = 0, done = 0;
};

struct Filling {  // a sample between its stages
  std::shared_ptr<BatchInWork> batch;
  int64_t place = 0;
  PreparedSample sample;
};

struct Reading {  // a sample to be read
  std::shared_ptr<BatchInWork> batch;
  int64_t place = 0;
};

struct Wake {  // shared with batches in use, which may outlive the pipeline
  std::mutex mutex;
  std::condition_variable changed;
};

}  // namespace

struct Pipeline::Impl {
  Impl(std::shared_ptr<Store> store, const DataOptions& data, const AugmentationOptions& augmentation,
       const PipelineOptions& pipeline_options)
      : options(pipeline_options),
        maker(std::move(store), data, augmentation, pipeline_options),
        // What waits ready, one being used, one being filled.
        slots(std::make_shared<SlotPool>(maker.host_arrays(), options.batch_size, data.patch_size,
                                         std::max(1, options.prefetch) + 2)) {
    if (options.stride == 0) options.stride = options.batch_size;
    slots->on_return([shared = wake] {
      std::lock_guard lock(shared->mutex);  // a worker between its check and its wait must not miss this
      shared->changed.notify_all();
    });
    most_readers = std::max(1, options.threads);
    try {
      for (int i = 0; i < most_readers; ++i) threads.push_back(start_thread([this, i] { work(i); }));
    } catch (...) {  // those that did start would go on
      stop();
      throw;
    }
  }

  ~Impl() { stop(); }

  void stop() {
    {
      std::lock_guard lock(mutex);
      stopping = true;
    }
    changed.notify_all();
    for (std::thread& thread : threads) thread.join();
  }

  int64_t sample_number(const BatchInWork& batch, int64_t place) const {
    return options.first_sample + batch.number * options.stride + place;
  }

  // The batch whose next sample is to be read; null where no slot is free or nothing is left. Needs the lock.
  std::shared_ptr<BatchInWork> batch_to_read() {
    if (!batches.empty() && batches.back()->begun < options.batch_size) return batches.back();
    if (options.batches >= 0 && next_number >= options.batches) return nullptr;
    std::shared_ptr<Slot> slot = slots->take();
    if (!slot) return nullptr;
    auto batch = std::make_shared<BatchInWork>();
    batch->number = next_number++;
    batch->slot = std::move(slot);
    batch->samples.resize(static_cast<size_t>(options.batch_size));
    if (options.gather_on != GatherOn::kHost) batch->on_device.resize(static_cast<size_t>(options.batch_size));
    batches.push_back(batch);
    return batch;
  }

  // What memory did not suffice for before goes first: batches are complete in order. Needs the lock.
  std::optional<Reading> next_reading() {
    if (readers >= most_readers) return std::nullopt;
    if (!put_off.empty()) {
      Reading reading = std::move(put_off.front());
      put_off.pop_front();
      return reading;
    }
    const std::shared_ptr<BatchInWork> batch = batch_to_read();
    if (!batch) return std::nullopt;
    return Reading{batch, batch->begun++};
  }

  void work(int thread) {
    const StopsWaiting at_the_end(stopping);
    std::unique_lock lock(mutex);
    while (!stopping) {
      if (!prepared.empty()) {
        Filling filling = std::move(prepared.front());
        prepared.pop_front();
        lock.unlock();
        fill(filling);
        lock.lock();
      } else if (const auto reading = next_reading()) {
        ++readers;
        const double patience_s = most_readers == 1 ? kLastPatience_s : kPatience_s + kMorePatience_s * thread;
        lock.unlock();
        read(*reading, patience_s);
        lock.lock();
        --readers;
        changed.notify_all();
      } else {
        changed.wait(lock);
      }
    }
  }

  void read(const Reading& reading, double patience_s) {
    const int64_t number = sample_number(*reading.batch, reading.place);
    const Span span("sample_read");
    const GivesWay patient(patience_s);
    try {
      Filling filling{reading.batch, reading.place, maker.read(number)};
      std::lock_guard lock(mutex);
      prepared.push_back(std::move(filling));
    } catch (const MemoryInUse& error) {
      if (patience_s == kLastPatience_s) return fail(number, error);
      put_off_until_fewer_read(reading);
    } catch (const std::exception& error) {
      fail(number, error);
    }
  }

  // Samples that are read side by side hold what the others wait for. What this one held is free by now.
  void put_off_until_fewer_read(const Reading& reading) {
    std::lock_guard lock(mutex);
    most_readers = std::max(1, std::min(most_readers, readers) - 1);
    put_off.push_back(reading);
  }

  void fill(Filling& filling) {
    const Span span("sample_fill");
    DeviceSample for_device;
    try {
      maker.fill(filling.sample, filling.place, *filling.batch->slot);
      if (options.gather_on != GatherOn::kHost) for_device = maker.for_device(filling.sample);
    } catch (const std::exception& error) {
      fail(filling.sample.info.sample, error);
      return;
    }
    filling.sample.parts.clear();  // lets the store's blocks go before anyone waits for their memory
    std::lock_guard lock(mutex);
    const size_t place = static_cast<size_t>(filling.place);
    filling.batch->samples[place] = filling.sample.info;
    if (options.gather_on != GatherOn::kHost) filling.batch->on_device[place] = std::move(for_device);
    ++filling.batch->done;
    changed.notify_all();
  }

  void fail(int64_t sample, const std::exception& error) {
    const std::string id = maker.case_id(sample);
    const std::string context = id.empty() ? concat("sample ", sample) : concat("case ", id, " (sample ", sample, ")");
    std::lock_guard lock(mutex);
    if (!failure) failure = with_context(context, error);
    stopping = true;
    changed.notify_all();
  }

  // Needs the lock.
  bool has_answer() const {
    return failure || (!batches.empty() && batches.front()->done == options.batch_size) ||
           (batches.empty() && options.batches >= 0 && next_number >= options.batches);
  }

  bool ready() {
    std::lock_guard lock(mutex);
    return has_answer();
  }

  bool next(Batch& batch) {
    batch = {};  // gives its slot back before waiting for another
    const auto start = Clock::now();
    const Span span("queue_wait");
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return has_answer(); });
    if (failure) throw *failure;
    if (batches.empty()) return false;
    const std::shared_ptr<BatchInWork> ready = batches.front();
    batches.pop_front();
    batch.step = (options.first_sample + ready->number * options.stride) / options.stride;
    batch.arrays = ready->slot->arrays;
    batch.samples = ready->samples;
    batch.on_device = std::move(ready->on_device);
    batch.slot = std::move(ready->slot);  // the batch alone decides when the slot is free again
    batch.waited_s = seconds_since(start);
    return true;
  }

  PipelineOptions options;
  SampleMaker maker;
  std::shared_ptr<SlotPool> slots;
  const std::shared_ptr<Wake> wake = std::make_shared<Wake>();
  std::mutex& mutex = wake->mutex;  // guards everything below
  std::condition_variable& changed = wake->changed;
  std::deque<std::shared_ptr<BatchInWork>> batches;  // begun and not yet handed out, in order
  std::deque<Filling> prepared;                      // at most one per thread: a thread fills before it reads again
  std::deque<Reading> put_off;
  int readers = 0, most_readers = 1;
  int64_t next_number = 0;
  std::atomic<bool> stopping = false;  // read without the lock by threads that wait for memory
  std::optional<Error> failure;
  std::vector<std::thread> threads;
};

Pipeline::Pipeline(std::shared_ptr<Store> store, const DataOptions& data, const AugmentationOptions& augmentation,
                   const PipelineOptions& options)
    : impl_(std::make_unique<Impl>(std::move(store), data, augmentation, options)) {}

Pipeline::~Pipeline() = default;

bool Pipeline::next(Batch& batch) {
  return impl_->next(batch);
}

bool Pipeline::ready() const {
  return impl_->ready();
}

std::vector<ArraySpec> Pipeline::device_arrays() const {
  return impl_->maker.device_arrays();
}

}  // namespace vox
