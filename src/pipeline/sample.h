// One sample, in its two stages: read (choose, draw, fetch what the map needs) and fill (gather into a slot).
#pragma once

#include <memory>
#include <vector>

#include "augment/augment.h"
#include "patch/sampler.h"
#include "pipeline/pipeline.h"
#include "pipeline/sample_context.h"
#include "pipeline/slots.h"
#include "targets/target.h"

namespace vox {

struct PreparedArray {
  const char* name;  // of the batch array
  int64_t channel;
  VolumeName source;
  Block block;  // empty where the volume is on the device
};

struct PreparedSample {
  SampleInfo info;
  Drawn drawn;
  GatherMap map;
  std::vector<PreparedArray> parts;
};

class SampleMaker {
 public:
  SampleMaker(std::shared_ptr<Store> store, const DataOptions& data, const AugmentationOptions& augmentation,
              const PipelineOptions& options);

  std::vector<ArraySpec> host_arrays() const;    // what fill() writes
  std::vector<ArraySpec> device_arrays() const;  // what for_device() tells
  PreparedSample read(int64_t sample) const;
  void fill(const PreparedSample& sample, int64_t place_in_batch, Slot& slot) const;
  DeviceSample for_device(const PreparedSample& sample) const;
  std::string case_id(int64_t sample) const;  // for messages; empty where even that fails

 private:
  std::vector<ArraySpec> array_specs() const;
  bool on_device(const std::string& array) const;
  Box3 box_of(const PreparedSample& sample, const std::string& array) const;
  GatherOptions gather_options(const std::string& array) const;
  void fill_targets(const PreparedSample& sample, int64_t place, Slot& slot) const;
  void fill_image(const PreparedSample& sample, const PreparedArray& part, int64_t place, BatchArray& array) const;

  std::shared_ptr<Store> store_;
  DataOptions data_;
  AugmentationOptions augmentation_;
  uint64_t seed_;
  bool augment_;
  GatherOn gather_on_;
  BoxMemory box_memory_;
  SampleContexts contexts_;
  bool has_label_ = false, has_mask_ = false;
  std::unique_ptr<Sampler> sampler_;
  std::vector<std::pair<std::string, std::unique_ptr<Target>>> targets_;  // by the name of their array
};

}  // namespace vox
