// Batches that terms with a delay come back to: the input and targets of the step that began them, until they are
// applied. A checkpoint in between holds what the terms found; the batches themselves are made again from the numbers
// of their samples.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "train/device_batch.h"

namespace vox {

struct KeptBatch {  // a micro-batch
  int64_t step = 0, micro = 0;
  DeviceBatch batch;
  std::vector<LateTerm> terms;
};

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

class KeptBatches {
 public:
  // Copies what the next step may overwrite.
  void keep(int64_t step, const DeviceBatch& batch, std::vector<LateTerm> terms);
  std::vector<KeptBatch>& all() { return batches_; }
  void forget_finished();

  NamedTensors state(const LossSet& loss);  // waits for what is still sought
  // `next` gives the micro-batches from step loss.first_unfinished(step) on; those before `step` are taken from it.
  // What the state lacks is left out: the number of such terms.
  struct Resumed {
    const LossSet& loss;
    int64_t step, micro_batches;
    std::function<DeviceBatch()> next;
  };
  int64_t restore(const NamedTensors& state, const Resumed& resumed);

 private:
  std::vector<KeptBatch> batches_;
};

}  // namespace vox
