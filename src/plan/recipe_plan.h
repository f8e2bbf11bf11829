// What a recipe is written from, and the parts of it that have a file of their own.
#pragma once

#include <cstdint>
#include <map>

#include "plan/recipe.h"
#include "plan/recipe_text.h"
#include "plan/topology.h"

namespace vox {

struct Plan {
  const PlanRequest& request;
  NetworkPlan network;
  bool regression = false, binary = false, nnunet = false, anisotropic = false;
  int64_t batch = 2, outputs = 1;
  std::map<int64_t, int64_t> labels;  // value, voxels

  const Layout& layout() const { return request.layout; }
  const Fingerprint& print() const { return request.print; }
  bool held_out() const { return layout().data.split != "none"; }
};

// Loss, training, validation, inference.
void write_learning(RecipeText& out, const Plan& plan);

}  // namespace vox
