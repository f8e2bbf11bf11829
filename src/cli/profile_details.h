// What a few steps under torch's profiler showed, as `voxloom profile` prints it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "measure/profile.h"

namespace vox::cli {

void add_details(const Profile& profile, nlohmann::json& document);  // to what the profile has said already
std::string details_text(const Profile& profile);

}  // namespace vox::cli
