// The HTML report of a folder, for the commands that leave something in it.
#pragma once

#include <filesystem>
#include <string>

namespace vox::cli {

// Writes report.html into the folder of a run, or of a profile or a search alone.
std::filesystem::path write_folder_report(const std::filesystem::path& folder);
// Leaves a JSON document under that name in the folder, made where it is missing, and its report; says where.
void leave_in_folder(const std::filesystem::path& folder, const std::string& file, const std::string& document);

}  // namespace vox::cli
