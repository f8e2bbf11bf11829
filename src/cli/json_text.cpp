#include "cli/json_text.h"

#include <nlohmann/json.hpp>

namespace vox::cli {

namespace {

std::string text_of(const auto& document) {
  return document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string json_text(const nlohmann::json& document) {
  return text_of(document);
}

std::string json_text(const nlohmann::ordered_json& document) {
  return text_of(document);
}

}  // namespace vox::cli
