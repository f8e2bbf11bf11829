#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace vox::cli {

// As `--json` prints it. Names of files need not be UTF-8, JSON must: other bytes become U+FFFD.
std::string json_text(const nlohmann::json& document);
std::string json_text(const nlohmann::ordered_json& document);

}  // namespace vox::cli
