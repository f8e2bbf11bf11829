// Steps, epochs, validation and saving, until the run ends or is asked to.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/span.h"
#include "train/checkpoint_folder.h"
#include "train/learner.h"
#include "train/probe.h"
#include "train/run_log.h"
#include "train/schedule.h"
#include "train/signals.h"
#include "train/state.h"
#include "train/step.h"
#include "train/threads.h"

namespace vox {

enum class LoopEnd { kFinished, kStoppedEarly, kSignal, kRequest };

class TrainingLoop {
 public:
  struct Parts {
    const Options& options;
    Learner& learner;
    std::shared_ptr<Store> store;
    RunWriter& writer;
    RunLog& log;
    TrainState& state;
    Schedule& schedule;
    SignalWatch& signals;
    ThreadPlan threads;
    at::Device device;
    std::string export_folder;
    NamedTensors kept;  // StepRunner::kept_state of the checkpoint that the run goes on from
    const StepProbe* probe = nullptr;
    Team* team = nullptr;    // that this process leads; null: it trains alone
    bool from_file = false;  // that was named: the run has no checkpoint of where it stands
  };
  explicit TrainingLoop(const Parts& parts);

  LoopEnd run();
  void finish_saving() { background_.finish(); }

 private:
  struct Pending {  // a step whose values are still on the device
    int64_t step;
    double lr;
    StepReport report;
  };

  struct Window {  // steps whose values are on their way to the host
    std::vector<Pending> steps;
    at::Tensor values;
    at::Tensor term_ns;                 // LossSet::term_nanoseconds after the last of them
    std::unique_ptr<c10::Event> there;  // on a GPU
    StageTimes times;
  };

  struct Unlogged {  // since the last logged step
    int64_t steps = 0;
    double wall_s = 0;
    StageTimes times;
  };

  void step_once();
  bool probe_goes_on();
  void read_pending();
  void begin_window();
  void read_window();
  void note_terms(const StepReport& report, const StepValues& values);
  void note_gpu_times(const Window& window);
  void note_values(const Pending& pending, const StepValues& values);
  void note_bad(const Pending& pending, const StepValues& values);
  [[noreturn]] void end_for_bad_steps();
  void log_step(const Pending& pending, const StepValues& values);
  void take_up_kept();
  void log_histograms(int64_t step, double loss_scale);
  void end_epoch();
  std::optional<double> gpu_peak_so_far();
  bool validate_now();  // true: a new best
  void look_up_from_validation();
  bool is_due() const;    // a checkpoint that nobody asked for
  bool save_is_wanted();  // by a signal, or by the time that has passed
  void save(const CheckpointLinks& links);
  bool has_validation() const;
  bool is_quiet() const;

  Parts parts_;
  RunLength length_;
  std::vector<std::string> terms_;
  LossSet validation_loss_;
  CheckpointFolder folder_;
  std::shared_ptr<Pipeline> pipeline_;
  std::unique_ptr<StepRunner> runner_;
  std::vector<Pending> pending_;
  std::optional<std::pair<BadStep, int64_t>> last_straw_;  // so many in a row end the run
  std::optional<Window> window_;
  Unlogged unlogged_;
  std::vector<int64_t> term_ns_;                                  // Window::term_ns of the one before
  std::vector<std::optional<double>> term_values_;                // since the last logged step: the last of each
  std::map<std::string, std::pair<double, int64_t>> term_times_;  // since the last logged step: sum and count
  std::optional<double> probed_loss_, gpu_peak_gb_;
  Clock::time_point window_start_, last_save_;
  bool saved_;  // nothing has changed since
  std::atomic<double> last_write_s_ = 0;
  std::vector<std::pair<std::string, double>> last_scores_;
  BackgroundWriter background_;  // last: its jobs use what stands above
};

}  // namespace vox
