#include "cli/json_text.h"

#include <nlohmann/json.hpp>

namespace vox::cli {

std::string json_text(const nlohmann::json& document) {
  return document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace vox::cli
