// Reader and augment threads over bounded queues into recycled slots. A batch is a pure function of (dataset,
// configuration, seed, step): nothing depends on threads, timing or history.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/dtype.h"
#include "config/options.h"
#include "pipeline/device_sample.h"
#include "volume/store.h"

namespace vox {

struct BatchArray {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;  // N, C, Z, Y, X
  bool channels_last = false;  // order in memory: N, Z, Y, X, C
  std::byte* data = nullptr;
  int64_t bytes() const;
};

struct ArraySpec {  // of a batch
  std::string name;
  DType dtype;
  int64_t channels;
  bool channels_last;
};

struct SampleInfo {
  int64_t sample = 0;  // its number: replays it alone
  int64_t case_index = 0;
  Extent3 begin;  // of the patch, before augmentation
  Spacing3 spacing;
};

struct Batch {  // valid until it is handed back by the next call of next(), or destroyed
  int64_t step = 0;
  std::map<std::string, BatchArray> arrays;  // image, label, mask, target.*
  std::vector<SampleInfo> samples;
  std::vector<DeviceSample> on_device;  // what the device is to add, sample by sample; empty with GatherOn::kHost
  std::shared_ptr<void> slot;           // keeps the memory; recycled when the last copy goes
  double waited_s = 0;                  // how long next() waited for it
};

struct PipelineOptions {
  uint64_t seed = 0;
  int64_t first_sample = 0;  // number of the first sample of the first batch
  int64_t batch_size = 2;    // samples a batch
  int64_t stride = 0;        // samples between the starts of two batches; 0: batch_size
  int64_t batches = -1;      // -1: no end
  int threads = 1;
  int prefetch = 2;  // batches ready ahead of the consumer
  Split split = Split::kTrain;
  bool augment = true;
  std::vector<TargetOptions> targets{};  // arrays target.<name>, made from the label
  GatherOn gather_on = GatherOn::kHost;
  BoxMemory box_memory{};  // with kDeviceFromBoxes
};

class Pipeline {
 public:
  Pipeline(std::shared_ptr<Store> store, const DataOptions& data, const AugmentationOptions& augmentation,
           const PipelineOptions& options);
  ~Pipeline();  // at any moment: threads end, slots are freed
  // The next batch in order; a worker's exception arrives here with the case id. False after the last.
  bool next(Batch& batch);
  bool ready() const;                            // next() would not wait
  std::vector<ArraySpec> device_arrays() const;  // what Batch::on_device makes

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace vox
