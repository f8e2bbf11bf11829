// A table as spreadsheets and challenge sites write it: comma-separated, first row names the columns, quotes around
// fields that need them (RFC 4180).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace vox {

struct Table {
  std::filesystem::path file;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;  // each as long as columns

  int64_t column(const std::string& name) const;  // -1 where absent
  // As column(), but an Error that names the file, what asked for it and the nearest column.
  int64_t require_column(const std::string& name, const std::string& asked_by) const;
};

Table read_table(const std::filesystem::path& file);

}  // namespace vox
