// metrics.csv: one row per log step and split. Absent values are empty; rows reach the file at once.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace vox {

struct MetricsRow {
  int64_t step = 0, epoch = 0;
  std::string split = "train";  // "train" or "val"
  std::vector<std::pair<std::string, double>> values;

  void set(const std::string& column, double value);
  void set(const std::string& column, const std::optional<double>& value);  // nothing where absent
  std::optional<double> get(const std::string& column) const;
};

struct MetricsTable {
  std::vector<std::string> columns;  // without step, epoch, split
  std::vector<MetricsRow> rows;
};

// Columns of every run, in order: loss, lr, grad_norm, step_ms, data_wait_ms, samples_per_s, gpu_util, gpu_mem_gb,
// gpu_temp_c, gpu_power_w, host_rss_gb (gpu_util is a fraction, 0..1; step_ms holds the data wait). `loss.<term>`
// columns stand after loss; others (validation scores, transfer_ms, forward_ms, loss_ms, backward_ms, optimizer_ms) at
// the end.
const std::vector<std::string>& standard_columns();

// A file that ends in half a line (the process was killed) is read without it.
MetricsTable read_metrics(const std::filesystem::path& file);

class MetricsWriter {
 public:
  // Appends where the file exists. `columns` beyond the standard ones that are known to come: a column that only shows
  // up in a later row makes the file be rewritten once.
  explicit MetricsWriter(const std::filesystem::path& file, const std::vector<std::string>& columns = {});

  void write(const MetricsRow& row);
  // Drops rows with a greater step: what a resume does. With `open` the validation of this step goes too: it will come
  // again.
  void cut_after(int64_t step, bool open = false);

 private:
  void reopen();
  void rewrite(const MetricsTable& table);
  void add_column(const std::string& column);

  struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::filesystem::path path_;
  std::vector<std::string> columns_;
  std::unique_ptr<std::FILE, CloseFile> file_;
};

}  // namespace vox
