#include "volume/csv.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace vox {
namespace {

std::vector<std::vector<std::string>> parse_records(const std::string& text, const fs::path& file) {
  std::vector<std::vector<std::string>> records;
  std::vector<std::string> record;
  std::string field;
  bool quoted = false;
  const auto end_field = [&] { record.push_back(trim(field)), field.clear(); };
  const auto end_record = [&] {
    end_field();
    if (record.size() > 1 || !record[0].empty()) records.push_back(record);
    record.clear();
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '"' && i + 1 < text.size() && text[i + 1] == '"')
      field += c, ++i;
    else if (c == '"')
      quoted = !quoted;
    else if (c == ',' && !quoted)
      end_field();
    else if (c == '\n' && !quoted)
      end_record();
    else
      field += c;
  }
  VOX_CHECK(!quoted, file.string(), ": a quote is opened and never closed");
  end_record();
  return records;
}

}  // namespace

int64_t Table::column(const std::string& name) const {
  const auto at = std::find(columns.begin(), columns.end(), name);
  return at == columns.end() ? -1 : at - columns.begin();
}

int64_t Table::require_column(const std::string& name, const std::string& asked_by) const {
  const int64_t at = column(name);
  const std::string close = nearest(name, columns);
  VOX_CHECK(at >= 0, file.string(), ": there is no column \"", name, "\", which ", asked_by, " names; ",
            close.empty() ? concat("the columns are ", join(columns, ", ")) : concat("did you mean \"", close, "\"?"));
  return at;
}

Table read_table(const fs::path& file) {
  std::string text = read_file(file);
  if (text.starts_with("\xef\xbb\xbf")) text.erase(0, 3);  // spreadsheets begin UTF-8 files with this mark
  std::vector<std::vector<std::string>> records = parse_records(text, file);
  VOX_CHECK(!records.empty(), file.string(), ": the table is empty; its first row must name the columns");
  Table table{file, records.front(), {records.begin() + 1, records.end()}};
  for (size_t i = 0; i < table.rows.size(); ++i)
    VOX_CHECK(table.rows[i].size() == table.columns.size(), file.string(), ": row ", i + 2, " has ",
              table.rows[i].size(), " fields, but the first row names ", table.columns.size(), " columns");
  return table;
}

}  // namespace vox
