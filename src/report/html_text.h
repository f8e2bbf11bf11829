// Text for HTML: escaping, embedding, numbers as people read them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace vox {

std::string escape_html(const std::string& text);
std::string base64(const std::string& bytes);
std::string embedded_png(const std::filesystem::path& file);  // a data: address

std::string short_number(double value);                        // four significant digits: 0.8123, 12.3k, 3.1e-05
std::string short_number(const std::optional<double>& value);  // "-" where absent

const char* report_style();   // CSS
const char* report_script();  // JavaScript

}  // namespace vox
