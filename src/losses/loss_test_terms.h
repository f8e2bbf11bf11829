// What tests of losses write as a recipe would.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "losses/loss.h"

namespace vox {

inline Tree scalar(const std::string& value) {
  Tree tree;
  tree.kind = Tree::Kind::kScalar;
  tree.scalar = value;
  return tree;
}

inline LossTerm term(const std::string& name, const std::vector<std::pair<std::string, Tree>>& params = {}) {
  LossTerm result;
  result.name = name;
  result.params.kind = Tree::Kind::kMap;
  result.params.members = params;
  return result;
}

struct Case {  // a loss, and what it is compared with
  LossOptions loss;
  DataOptions data;
  int64_t channels = 1;
  Targets targets;

  at::Tensor total(const at::Tensor& logits, int64_t step = 0) const {
    return LossSet(loss, data, channels).compute({logits}, targets, step).total;
  }
};

}  // namespace vox
