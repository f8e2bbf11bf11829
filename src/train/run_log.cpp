#include "train/run_log.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "config/config.h"
#include "report/html.h"
#include "report/machine.h"
#include "train/checkpoint_folder.h"

namespace vox {
namespace {

std::vector<std::string> extra_columns(const std::vector<std::string>& terms) {
  std::vector<std::string> columns;
  for (const std::string& term : terms) columns.push_back("loss." + term);
  for (const char* stage : {"transfer_ms", "forward_ms", "loss_ms", "backward_ms", "optimizer_ms"})
    columns.push_back(stage);
  return columns;
}

ProgressOptions progress_options(const std::string& style) {
  ProgressOptions options;
  if (style == "bar") options.style = ProgressOptions::Style::kBar;
  if (style == "lines") options.style = ProgressOptions::Style::kLines;
  return options;
}

std::optional<double> stage_seconds(const LoggedStep& logged, const std::string& stage) {
  for (const auto& [name, seconds] : logged.stage_s)
    if (name == stage) return seconds;
  return std::nullopt;
}

std::optional<double> wait_fraction(const LoggedStep& logged) {
  const std::optional<double> wait = stage_seconds(logged, "data_wait");
  if (!wait || logged.step_s <= 0) return std::nullopt;
  return *wait / logged.step_s;
}

constexpr const char* kBadSteps = "bad_steps.jsonl";

void cut_bad_steps_after(const fs::path& path, int64_t step) {
  if (!fs::exists(path)) return;
  std::istringstream lines(read_file(path));
  std::string kept;
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json bad = nlohmann::json::parse(line, nullptr, false);
    if (bad.is_object() && bad.value("step", int64_t{0}) <= step) kept += line + "\n";
  }
  write_file(path, kept);
}

}  // namespace

RunLog::RunLog(RunWriter& writer, const Options& options, const std::vector<std::string>& terms)
    : writer_(writer),
      options_(options),
      columns_(extra_columns(terms)),
      quiet_(options.monitor.progress == "off"),
      progress_(progress_options(options.monitor.progress)),
      rss_gb_(resident_gb()) {}

void RunLog::resume_after(int64_t step, bool epoch_open) {
  if (!path_exists(CheckpointFolder(writer_.folder().checkpoints()).last())) writer_.forget_checkpoint();
  metrics_ = std::make_unique<MetricsWriter>(writer_.folder().metrics(), columns_);
  metrics_->cut_after(step, epoch_open);
  cut_bad_steps_after(writer_.folder().path() / kBadSteps, step);
  cut_events_after(writer_.folder().path(), step, epoch_open);
  drop_slices_after(writer_.folder(), length_.steps_per_epoch > 0 ? step / length_.steps_per_epoch : 0);
  if (options_.monitor.tensorboard) events_ = std::make_unique<EventWriter>(writer_.folder().path());
}

void RunLog::loading(const std::string& what, int64_t bytes_done, int64_t bytes_total, double seconds) {
  if (!quiet_) progress_.loading({what, bytes_done, bytes_total, seconds});
}

void RunLog::validating(int64_t done, int64_t total) {
  if (!quiet_) progress_.validating(done, total);
}

void RunLog::flush() {
  if (events_) events_->flush();
}

void RunLog::say(const std::string& line) {
  writer_.log(line);
  if (!quiet_) progress_.message(line);
}

void RunLog::warn(const std::string& line) {
  writer_.warning(line);
  progress_.message("warning: " + line);
}

RunStatus RunLog::status_at(int64_t step) const {
  RunStatus status;
  status.step = step;
  status.total_steps = length_.total_steps();
  status.epoch = length_.steps_per_epoch > 0 ? length_.epoch_of(std::max<int64_t>(1, step)) : 0;
  status.total_epochs = length_.epochs;
  status.host_rss_gb = rss_gb_;
  if (!last_) return status;
  status.loss = last_->loss;
  status.step_ms = last_->step_s * 1000;
  status.samples_per_s = static_cast<double>(length_.effective_batch) / last_->step_s;
  status.data_wait = wait_fraction(*last_);
  status.gpu_mem_gb = last_->gpu_mem_gb;
  status.gpu_util = reading_.use;
  status.eta_s = static_cast<double>(status.total_steps - step) * last_->step_s;
  return status;
}

void RunLog::tick(int64_t step) {
  const RunStatus status = status_at(step);
  writer_.update(status);
  if (quiet_) return;
  StepProgress now;
  now.epoch = status.epoch;
  now.epochs = status.total_epochs;
  now.step = step;
  now.total_steps = status.total_steps;
  now.step_in_epoch = (step - 1) % length_.steps_per_epoch + 1;
  now.steps_in_epoch = length_.steps_per_epoch;
  if (last_ && last_->step == step) now.loss = last_->loss;
  now.samples_per_s = status.samples_per_s;
  now.data_wait = status.data_wait;
  now.memory_gb = status.gpu_mem_gb ? status.gpu_mem_gb : status.host_rss_gb;
  now.eta_s = status.eta_s;
  progress_.step(now);
}

void RunLog::step(const LoggedStep& logged) {
  last_ = logged;
  rss_gb_ = resident_gb();
  if (gpu_) reading_ = gpu_->last();
  if (reading_.use) {
    use_sum_.first += *reading_.use;
    ++use_sum_.second;
  }
  MetricsRow row{logged.step, length_.epoch_of(logged.step), "train", {}};
  row.set("loss", logged.loss);
  for (const auto& [name, value] : logged.terms) row.set("loss." + name, value);
  for (const auto& [name, seconds] : logged.term_s) row.set(name + "_ms", seconds * 1000);
  row.set("lr", logged.lr);
  row.set("grad_norm", logged.grad_norm);
  row.set("step_ms", logged.step_s * 1000);
  for (const auto& [name, seconds] : logged.stage_s) row.set(name + "_ms", seconds * 1000);
  row.set("samples_per_s", static_cast<double>(length_.effective_batch) / logged.step_s);
  row.set("gpu_util", reading_.use);
  row.set("gpu_mem_gb", logged.gpu_mem_gb);
  row.set("gpu_temp_c", reading_.temperature_c);
  row.set("gpu_power_w", reading_.power_w);
  row.set("host_rss_gb", rss_gb_);
  metrics_->write(row);
  if (!events_) return;
  for (const auto& [name, value] : row.values) events_->scalar("train/" + name, value, logged.step);
}

void RunLog::phase(const std::string& name, int64_t step) {
  RunStatus status = status_at(step);
  status.phase = name;
  writer_.update(status);
}

void RunLog::validation(int64_t step, const std::vector<std::pair<std::string, double>>& scores,
                        std::vector<SliceStrip> strips) {
  MetricsRow row{step, length_.epoch_of(step), "val", {}};
  for (const auto& [name, value] : scores) {
    row.set(name, value);
    if (events_) events_->scalar(kValidationTag + name, value, step);
  }
  metrics_->write(row);
  for (SliceStrip& strip : strips) {
    strip.epoch = length_.epoch_of(step);
    save_slice_strip(writer_.folder(), strip);
    if (events_) events_->image(kValidationTag + strip.case_id, side_by_side(strip), step);
  }
}

void RunLog::histogram(const std::string& name, std::span<const float> values, int64_t step) {
  if (events_) events_->histogram(name, values, step);
}

void RunLog::epoch(EpochSummary summary, int64_t step) {
  if (use_sum_.second > 0) summary.gpu_util = use_sum_.first / static_cast<double>(use_sum_.second);
  use_sum_ = {};
  writer_.log(epoch_line(summary));
  if (!quiet_) progress_.epoch(summary);
  if (!events_) return;
  events_->scalar(kEpochTag, static_cast<double>(summary.epoch), step);
  flush();
}

void RunLog::bad_step(const BadStep& bad) {
  const nlohmann::json line{{"step", bad.step}, {"what", bad.what}, {"samples", bad.samples}, {"cases", bad.cases}};
  std::ofstream file(writer_.folder().path() / kBadSteps, std::ios::app);
  file << line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  warn(concat("step ", bad.step, ": ", bad.what, " is not finite; the step changed nothing (cases ",
              join(bad.cases, ", "), "; bad_steps.jsonl has the sample numbers)"));
}

void RunLog::finish() {
  flush();
  progress_.clear();
  if (!options_.monitor.report) return;
  std::vector<ConfigurationRow> rows;
  for (const OptionDifference& difference : differences(Options{}, options_))
    rows.push_back({difference.key, difference.after, difference.before});
  write_report(writer_.folder(), rows);
}

}  // namespace vox
