// From what a dataset is like to a recipe that says why each of its lines is as it is.
#pragma once

#include <filesystem>
#include <string>

#include "plan/fingerprint.h"
#include "plan/layout.h"

namespace vox {

enum class PlanStyle { kVoxloom, kNnunet };

struct PlanRequest {
  const Layout& layout;
  const Fingerprint& print;
  PlanStyle style = PlanStyle::kVoxloom;
  std::filesystem::path recipe;  // file it will be: data below its folder are named relative to it
};

// YAML that `voxloom train` takes as it is. Error where the dataset cannot be planned for.
std::string plan_recipe(const PlanRequest& request);

}  // namespace vox
