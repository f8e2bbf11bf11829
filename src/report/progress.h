// What one sees while a run goes on: a bar on a terminal, plain lines elsewhere, one line at the end of each epoch.
// Everything goes to one stream, standard error unless told otherwise.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace vox {

struct StepProgress {
  int64_t epoch = 0, epochs = 0;                  // counted from 1
  int64_t step = 0, total_steps = 0;              // of the run
  int64_t step_in_epoch = 0, steps_in_epoch = 0;  // counted from 1
  std::optional<double> loss;                     // absent: not fetched at this step
  std::optional<double> samples_per_s;
  std::optional<double> data_wait;  // fraction of the time, 0..1
  std::optional<double> memory_gb;  // of the GPU, or of the process where there is none
  std::optional<double> eta_s;
};

struct EpochSummary {
  int64_t epoch = 0, epochs = 0;
  std::optional<double> loss;
  std::vector<std::pair<std::string, double>> terms;   // loss terms
  std::vector<std::pair<std::string, double>> scores;  // of validation; empty: none this epoch
  double seconds = 0;
  std::optional<double> samples_per_s, data_wait, gpu_util, gpu_mem_gb, host_rss_gb;  // data_wait, gpu_util 0..1
};

struct LoadProgress {
  std::string what = "loading";
  int64_t bytes_done = 0, bytes_total = 0;
  double seconds = 0;  // since loading began
};

bool is_screen(int descriptor);  // a terminal that lines can be taken from again (not TERM=dumb)

struct ProgressOptions {
  std::FILE* out = stderr;
  enum class Style { kAuto, kBar, kLines } style = Style::kAuto;  // kAuto: a bar where `out` is a screen
  double line_seconds = 10;                                       // between plain lines
};

class Progress {
 public:
  explicit Progress(const ProgressOptions& options = {});
  ~Progress();  // leaves the cursor on a line of its own
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void step(const StepProgress& now);
  void epoch(const EpochSummary& summary);
  void loading(const LoadProgress& now);         // names slow storage once
  void validating(int64_t done, int64_t total);  // cases or patches
  void message(const std::string& line);         // above the bar
  void clear();                                  // takes the bar away

 private:
  bool due(double seconds);
  void show(const std::string& line);
  void print(const std::string& line);
  std::string styled(const std::string& text, const char* code) const;

  ProgressOptions options_;
  bool bar_ = false, colour_ = false, bar_shown_ = false, slow_storage_said_ = false;
  std::optional<std::chrono::steady_clock::time_point> last_shown_;
  std::optional<double> average_loss_, last_loss_;
};

// The lines themselves, without colour.
std::string step_line(const StepProgress& now, std::optional<double> average_loss);
std::string epoch_line(const EpochSummary& summary);
std::string load_line(const LoadProgress& now);

}  // namespace vox
