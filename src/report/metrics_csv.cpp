#include "report/metrics_csv.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace vox {
namespace {

constexpr size_t kFixedColumns = 3;  // step, epoch, split
constexpr const char* kRemedy = "; was the file edited by hand? Mend it, or remove it: then the curves begin anew";

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Loss terms stand together after `loss`; anything else goes to the end.
void insert_column(std::vector<std::string>& columns, const std::string& name) {
  if (contains(columns, name)) return;
  auto place = columns.end();
  if (name.starts_with("loss.")) {
    place = std::find_if(columns.begin(), columns.end(),
                         [](const std::string& other) { return other != "loss" && !other.starts_with("loss."); });
  }
  columns.insert(place, name);
}

std::string number_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return shortest(value);
}

std::string header_line(const std::vector<std::string>& columns) {
  std::string line = "step,epoch,split";
  for (const std::string& column : columns) line += "," + column;
  return line + "\n";
}

std::string row_line(const MetricsRow& row, const std::vector<std::string>& columns) {
  std::string line = concat(row.step, ",", row.epoch, ",", row.split);
  for (const std::string& column : columns) {
    const std::optional<double> value = row.get(column);
    line += "," + (value ? number_text(*value) : std::string());
  }
  return line + "\n";
}

template <class Number>
Number parse_cell(const std::string& cell, const std::string& where) {
  Number value{};
  const auto result = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  VOX_CHECK(result.ec == std::errc() && result.ptr == cell.data() + cell.size(), where, ": \"", cell, "\" is no number",
            kRemedy);
  return value;
}

MetricsRow parse_row(const std::string& line, const std::vector<std::string>& columns, const std::string& where) {
  const std::vector<std::string> cells = split(line, ',');
  VOX_CHECK(cells.size() == columns.size() + kFixedColumns, where, ": the row has ", cells.size(), " values, expected ",
            columns.size() + kFixedColumns, kRemedy);
  MetricsRow row;
  row.step = parse_cell<int64_t>(cells[0], where);
  row.epoch = parse_cell<int64_t>(cells[1], where);
  row.split = cells[2];
  for (size_t i = 0; i < columns.size(); ++i) {
    const std::string& cell = cells[i + kFixedColumns];
    if (!cell.empty()) row.values.emplace_back(columns[i], parse_cell<double>(cell, where));
  }
  return row;
}

}  // namespace

void MetricsRow::set(const std::string& column, double value) {
  for (auto& [name, old] : values) {
    if (name != column) continue;
    old = value;
    return;
  }
  values.emplace_back(column, value);
}

void MetricsRow::set(const std::string& column, const std::optional<double>& value) {
  if (value) set(column, *value);
}

std::optional<double> MetricsRow::get(const std::string& column) const {
  for (const auto& [name, value] : values)
    if (name == column) return value;
  return std::nullopt;
}

const std::vector<std::string>& standard_columns() {
  static const std::vector<std::string> columns{"loss",          "lr",       "grad_norm",  "step_ms",    "data_wait_ms",
                                                "samples_per_s", "gpu_util", "gpu_mem_gb", "gpu_temp_c", "gpu_power_w",
                                                "host_rss_gb"};
  return columns;
}

MetricsTable read_metrics(const fs::path& file) {
  const std::string text = read_file(file);
  MetricsTable table;
  size_t begin = 0;
  for (int64_t number = 1; begin < text.size(); ++number) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;  // half a line: its writer was killed
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    const std::string where = concat(file.string(), ":", number);
    if (number > 1) {
      table.rows.push_back(parse_row(line, table.columns, where));
      continue;
    }
    const std::vector<std::string> header = split(line, ',');
    VOX_CHECK(line.starts_with("step,epoch,split"), where, ": expected the header step,epoch,split,..., found \"", line,
              "\"; is this the metrics.csv of a run?");
    table.columns.assign(header.begin() + kFixedColumns, header.end());
  }
  return table;
}

MetricsWriter::MetricsWriter(const fs::path& file, const std::vector<std::string>& columns) : path_(file) {
  const bool exists = fs::exists(path_) && fs::file_size(path_) > 0;
  MetricsTable table;
  if (exists) table = read_metrics(path_);
  columns_ = table.columns;
  for (const std::string& column : standard_columns()) insert_column(columns_, column);
  for (const std::string& column : columns) insert_column(columns_, column);
  rewrite(table);  // also takes away half a line that a killed process left
}

void MetricsWriter::write(const MetricsRow& row) {
  for (const auto& [column, value] : row.values)
    if (!contains(columns_, column)) add_column(column);
  const std::string line = row_line(row, columns_);
  if (std::fwrite(line.data(), 1, line.size(), file_.get()) != line.size() || std::fflush(file_.get()) != 0)
    throw_system_error("write", path_.string(), errno);
  pretend_slow_log();
}

void MetricsWriter::cut_after(int64_t step, bool open) {
  MetricsTable table = read_metrics(path_);
  std::erase_if(table.rows, [&](const MetricsRow& row) {
    return row.step > step || (open && row.step == step && row.split == "val");
  });
  rewrite(table);
}

void MetricsWriter::add_column(const std::string& column) {
  VOX_ASSERT(!column.empty() && column.find_first_of(",\"\n") == std::string::npos);
  const MetricsTable table = read_metrics(path_);
  insert_column(columns_, column);
  rewrite(table);
}

void MetricsWriter::rewrite(const MetricsTable& table) {
  file_.reset();
  std::string text = header_line(columns_);
  for (const MetricsRow& row : table.rows) text += row_line(row, columns_);
  write_file(path_, text);
  reopen();
}

void MetricsWriter::reopen() {
  file_.reset(std::fopen(path_.c_str(), "a"));
  if (!file_) throw_system_error("write", path_.string(), errno);
}

}  // namespace vox
