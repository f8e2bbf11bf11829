#pragma once

#include <filesystem>

namespace vox::cli {

// Error where the file cannot be written: said before what it is for was computed, which may take hours. An empty name
// is none.
void require_writable(const std::filesystem::path& file);

}  // namespace vox::cli
