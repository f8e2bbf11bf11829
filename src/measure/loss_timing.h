// Loss terms alone: forward and backward on random logits and a synthetic label, without a network or a data path.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/options.h"

namespace vox {

struct LossBenchRequest {
  std::vector<LossTerm> terms;  // together
  Extent3 size{72, 136, 136};
  int64_t batch = 2, channels = 1;
  int64_t repeats = 7, warm_up = 2;
  int threads = 0;     // torch's own; 0: all there are
  std::string device;  // empty: a GPU where there is one
  uint64_t seed = 0;
};

struct LossBenchResult {
  // Of each repeat; both: forward and backward. On a GPU these are of captured graphs, as steps replay them, and hold
  // no time that a host takes to launch kernels; a loss that reads back and the CPU have nothing but the wall clock.
  std::vector<double> both_ms, forward_ms;
  std::vector<double> eager_ms;  // on a GPU also both by the wall clock, launches included
  double value = 0;
  int64_t extra_bytes = 0;  // at the peak of forward and backward, beside what was there before
};

// Regression losses see values, the others a label of sheets. Error where the loss cannot be computed from these.
LossBenchResult bench_loss(const LossBenchRequest& request);

}  // namespace vox
