// Whole texts as values; empty where the text is anything else or does not fit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace vox {

std::optional<bool> read_bool(const std::string& text);  // true/false, yes/no, on/off, 1/0
std::optional<int64_t> read_integer(const std::string& text);
std::optional<double> read_number(const std::string& text);  // finite

}  // namespace vox
