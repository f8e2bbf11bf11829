// Terms that one pass over the logits computes together, on a GPU: each value, and a weighted sum with its gradient.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "losses/fused_term.h"

namespace vox {

struct FusedRequest {
  struct Term {
    size_t index = 0;  // what the caller calls it
    FusedTerm form;
    double weight = 1;                 // in the sum
    std::vector<double> head_weights;  // of each of the logits; 0: not there
  };
  std::vector<Term> terms;
  std::vector<at::Tensor> logits;  // [N, C, z, y, x] of the channels that the terms see
  at::Tensor target;               // [N, C or 1, Z, Y, X], taken by nearest neighbour at smaller logits
  bool values = false;             // of the target: numbers, one volume a channel, or else classes
  at::Tensor label, mask;          // voxels that are `ignored` in one or 0 in the other do not count; may be undefined
  int64_t ignored = 0;
  std::vector<double> class_values;  // sorted; empty: 0, 1, 2, ...
};

// Takes outputs that no term weighs out of the terms' weights, and returns the others: they alone get a gradient.
std::vector<size_t> drop_unweighed_heads(FusedRequest& request, size_t heads);

struct FusedResult {
  at::Tensor total;                                   // undefined: no term could be computed here
  std::vector<std::pair<size_t, at::Tensor>> values;  // of those that were, by index
};
FusedResult compute_fused(const FusedRequest& request);

}  // namespace vox
