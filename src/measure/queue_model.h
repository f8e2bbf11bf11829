// The pipeline as a queueing system: threads make samples one by one into a bounded number of batches, in order; the
// step takes a batch, works, and gives its place back.
#pragma once

#include <cstdint>
#include <vector>

namespace vox {

struct QueueModel {
  std::vector<double> sample_ms;  // work of samples as measured; drawn from again and again
  int64_t samples_per_batch = 1;  // a micro-batch
  int64_t batches_per_step = 1;   // accumulation
  int workers = 1;
  int64_t batches_in_flight = 4;  // ready, in use and being filled
  double step_ms = 0;             // of the consumer, without waiting
};

double predicted_step_ms(const QueueModel& model);  // the mean over a long run

}  // namespace vox
