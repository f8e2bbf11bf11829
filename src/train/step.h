// One training step: forward, loss, backward over the micro-batches, then the optimizer. Nothing is read back from the
// device; what a step found out stays there until a log step fetches it.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "losses/loss.h"
#include "nets/network.h"
#include "pipeline/pipeline.h"
#include "train/device_batch.h"
#include "train/graph_step.h"
#include "train/kept_batches.h"
#include "train/optimizer.h"
#include "train/team.h"

namespace vox {

enum class Stage { kDataWait, kTransfer, kForward, kLoss, kBackward, kOptimizer, kCount };
constexpr int kStages = static_cast<int>(Stage::kCount);
struct StageTimes {  // seconds of the host; kDataWait is what the step stood still (data_clock.h)
  std::array<double, kStages> seconds{};
  double& operator[](Stage stage) { return seconds[static_cast<size_t>(stage)]; }
  double operator[](Stage stage) const { return seconds[static_cast<size_t>(stage)]; }
};

// Gives the next micro-batch and adds the time it took to data wait and transfer.
using BatchSource = std::function<DeviceBatch(StageTimes& times)>;
// Borrows the pipeline. Where `export_folder` is not empty, every batch is written there too (export_batch).
BatchSource source_of(Pipeline& pipeline, const at::Device& device, const std::string& export_folder = "");

// While `same` says so, one batch again and again: the step without its data path.
BatchSource repeating(BatchSource source, std::function<bool()> same);

struct StepReport {
  std::vector<SampleInfo> samples;  // of the whole step, in order
  at::Tensor values;                // on the device: loss, each term (NaN where absent), gradient norm, skipped, scale
  std::vector<bool> due;            // which terms this step had
  std::vector<std::optional<double>> term_s;  // LossSet::take_seconds
  std::vector<std::optional<double>> waits;   // seconds for which it waited for a term's threads; nullopt: it has none
};

struct StepValues {  // the same on the host
  double loss = 0;
  std::vector<double> terms;
  double grad_norm = 0;
  bool skipped = false;
  double loss_scale = 1;
};
StepValues read_step_values(const at::Tensor& row);  // one row of stacked StepReport::values, on the CPU

class StepRunner {
 public:
  struct Parts {
    Network& network;
    const LossSet& loss;
    Optimizer& optimizer;
    BatchSource next;
  };
  struct Settings {
    uint64_t seed = 0;
    int64_t accumulation = 1;        // micro-batches a step
    std::string cuda_graph = "off";  // training.cuda_graph
    std::string no_graph = {};       // why this step cannot be captured; empty: it can
    Team* team = nullptr;            // of processes that each have as many micro-batches; null: there is one
  };
  // The recipe's, for micro-batches of this size.
  static Settings settings_of(const Options& options, int64_t micro_batch, Team* team = nullptr);
  StepRunner(const Parts& parts, const Settings& settings);
  ~StepRunner();

  StepReport run(int64_t step, double lr);  // step counts from 0 here
  // Forward and backward of the batch at hand without touching a weight: what a warm-up runs.
  void rehearse(const DeviceBatch& batch, int64_t step);
  StageTimes take_times();
  bool captured() const;    // the last step was a replay of CUDA graphs
  std::string take_note();  // what to say once about the graphs; mostly empty

  // Batches that terms with a delay will come back to.
  NamedTensors kept_state() { return kept_.state(parts_.loss); }
  // Takes the batches of the steps from loss.first_unfinished(step) to this one; the number of terms that the state
  // lacks.
  int64_t restore_kept(const NamedTensors& state, int64_t step);

 private:
  struct Sums;
  StepReport run_step(int64_t step);
  void add_micro_batch(int64_t step, StepReport& report, Sums& sums);
  void come_back_to(KeptBatch& kept, int64_t step, StepReport& report, Sums& sums);
  void add_batch(const DeviceBatch& batch, int64_t step, StepReport& report, Sums& sums);
  LossResult loss_of(const std::vector<at::Tensor>& logits, const Targets& targets, int64_t step);
  LossSet::Part part() const { return late_ == nullptr ? LossSet::Part::kAtOnce : LossSet::Part::kLate; }
  bool captures(const GraphInput& input);  // false: this batch runs eagerly
  void replay_micro_batch(const GraphInput& input, Sums& sums);
  void add_up(Sums& sums);                           // what the processes of a team have
  double share() const;                              // of a micro-batch in the step's loss
  at::Tensor part_of(const at::Tensor& loss) const;  // of a micro-batch
  void update(const at::Tensor& loss);
  void update_or_replay(const at::Tensor& loss, bool replays);
  void give_up_graph(const std::string& why);

  Parts parts_;
  Settings settings_;
  StageTimes times_;
  std::shared_ptr<GraphStep> graph_;  // null: every step runs eagerly
  std::string note_;
  KeptBatches kept_;
  std::vector<LateTerm> begun_;            // by the micro-batch under way
  std::vector<LateTerm>* late_ = nullptr;  // while a kept batch is under way: its terms
};

// Why a step of this recipe cannot be captured as CUDA graphs; empty: it can.
std::string why_not_captured(const Options& options);

// Writes image, label and mask of a batch as FOLDER/<sample>.<name>.npy, the number being that of its first sample.
void export_batch(const Batch& batch, const std::string& folder);

}  // namespace vox
