// A batch as the network and the losses see it.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "losses/loss.h"
#include "pipeline/pipeline.h"

namespace vox {

at::ScalarType scalar_type(DType dtype);  // of an array of a batch

struct DeviceBatch {
  at::Tensor image;
  Targets targets;
  std::vector<SampleInfo> samples;
  std::shared_ptr<void> slot;  // host memory that the tensors still read, on a CPU
  bool resident = false;       // on a GPU: the image lies at this place in every step
};
// On a CPU the tensors are views of the slot; to a GPU they go through pinned memory without waiting.
DeviceBatch to_device(const Batch& batch, const at::Device& device);

}  // namespace vox
