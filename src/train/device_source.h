// Batches for training, from the tier that data.placement gives: made on the host, or on the GPU from volumes that lie
// there or from boxes that are copied a step ahead.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include "train/place.h"
#include "train/placement.h"
#include "train/step.h"

namespace vox {

struct Learner;

struct SourceRequest {
  std::shared_ptr<Store> store;
  const Options& options;
  int64_t first_sample = 0;
  int64_t micro_batch = 0;
  int data_threads = 1;
  at::Device device;
  std::string export_folder;         // as source_of
  const Learner* learner = nullptr;  // who reads the images; null: they are as data.patch_type and data.layout say
  Place place{};                     // of this process, where several train together
};
struct TrainingSource {
  Placement placement;
  std::shared_ptr<Pipeline> pipeline;
  BatchSource next;  // borrows the pipeline
};
// On a GPU after a step was rehearsed: what it left free is what volumes may take.
TrainingSource training_source(const SourceRequest& request);

// Compiled with CUDA alone.
PlacementFacts gpu_facts(const SourceRequest& request);
TrainingSource device_source(const SourceRequest& request, const Placement& placement);

}  // namespace vox
