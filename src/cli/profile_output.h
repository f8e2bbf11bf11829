// What `voxloom profile` prints.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "measure/compare.h"
#include "measure/profile.h"

namespace vox::cli {

nlohmann::json to_json(const Profile& profile);
nlohmann::json to_json(const Comparison& comparison);
std::string waterfall(const Profile& profile);
std::string comparison_text(const Comparison& comparison, const std::string& first, const std::string& second);

}  // namespace vox::cli
