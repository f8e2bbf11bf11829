// Everything a run says of itself while it trains: metrics.csv, TensorBoard, status.json, log.txt, the progress bar,
// the list of bad steps, and report.html at the end.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "config/options.h"
#include "report/gpu_monitor.h"
#include "report/metrics_csv.h"
#include "report/progress.h"
#include "report/run_writer.h"
#include "report/slices.h"
#include "report/tensorboard.h"

namespace vox {

struct RunLength {
  int64_t epochs = 0, steps_per_epoch = 0;
  int64_t effective_batch = 0;
  int64_t total_steps() const { return epochs * steps_per_epoch; }
  int64_t epoch_of(int64_t step) const { return (step - 1) / steps_per_epoch + 1; }  // both count from 1
};

struct LoggedStep {
  int64_t step = 0;
  double loss = 0, lr = 0, grad_norm = 0;
  std::vector<std::pair<std::string, double>> terms;    // those that were due
  std::vector<std::pair<std::string, double>> term_s;   // seconds for a term, and for its threads (TERM_wait); means
  double step_s = 0;                                    // mean since the last logged step
  std::vector<std::pair<std::string, double>> stage_s;  // data_wait, forward, ...; mean likewise
  std::optional<double> gpu_mem_gb;
};

struct BadStep {
  int64_t step = 0;
  std::string what;  // "loss.dice", "loss" or "gradient"
  std::vector<int64_t> samples;
  std::vector<std::string> cases;
};

class RunLog {
 public:
  RunLog(RunWriter& writer, const Options& options, const std::vector<std::string>& terms);

  void set_length(const RunLength& length) { length_ = length; }
  void watch_gpu(int device) { gpu_ = std::make_unique<GpuWatch>(monitor_of(device)); }
  // Before the first step. Cuts what lies beyond; where the epoch of that step is open, what ends it too: its
  // validation comes again.
  void resume_after(int64_t step, bool epoch_open);

  void loading(const std::string& what, int64_t bytes_done, int64_t bytes_total, double seconds);
  void say(const std::string& line);  // on the terminal and in log.txt
  void warn(const std::string& line);
  void tick(int64_t step);              // every step: the bar and the status, as often as they want it
  void step(const LoggedStep& logged);  // every monitor.log_every steps
  void phase(const std::string& name, int64_t step);
  void validating(int64_t done, int64_t total);
  void flush();  // what TensorBoard is to see, before a checkpoint: a run that is killed goes on from there
  void validation(int64_t step, const std::vector<std::pair<std::string, double>>& scores,
                  std::vector<SliceStrip> strips);
  void histogram(const std::string& name, std::span<const float> values, int64_t step);
  bool wants_histograms() const { return events_ && options_.monitor.gradient_histograms; }
  void epoch(EpochSummary summary, int64_t step);
  void bad_step(const BadStep& bad);
  void finish();  // report.html, where it is wanted

 private:
  RunStatus status_at(int64_t step) const;

  RunWriter& writer_;
  Options options_;
  RunLength length_;
  std::vector<std::string> columns_;  // of metrics.csv, beyond those of every run
  std::unique_ptr<MetricsWriter> metrics_;
  std::unique_ptr<EventWriter> events_;
  bool quiet_ = false;
  Progress progress_;
  std::optional<LoggedStep> last_;
  double rss_gb_ = 0;
  std::unique_ptr<GpuWatch> gpu_;         // null: there is none
  GpuReading reading_;                    // at the last logged step
  std::pair<double, int64_t> use_sum_{};  // of this epoch's readings, and how many
};

}  // namespace vox
