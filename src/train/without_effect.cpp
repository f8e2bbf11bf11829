#include "train/without_effect.h"

#include <algorithm>
#include <map>

#include "base/error.h"

namespace vox {
namespace {

void add_schedule(const TrainingOptions& training, int64_t total_steps, std::vector<std::string>& notes) {
  const bool one_cycle = training.schedule == "one_cycle";
  if (training.warmup_steps > 0 && one_cycle)
    notes.push_back("training.warmup_steps has no effect: schedule one_cycle has a warm-up of its own");
  if (training.warmup_steps >= total_steps && !one_cycle)
    notes.push_back(concat("training.warmup_steps is ", training.warmup_steps, ", but the run has ", total_steps,
                           " steps: the learning rate never reaches training.lr"));
  if (training.cooldown_steps > total_steps)
    notes.push_back(concat("training.cooldown_steps is ", training.cooldown_steps, ", but the run has ", total_steps,
                           " steps: the learning rate falls from the start"));
  if (training.schedule == "multistep" && training.milestones.empty())
    notes.push_back("training.schedule is multistep, but training.milestones is empty: the learning rate stays");
}

void add_validation(const Options& options, const PlannedRun& facts, std::vector<std::string>& notes) {
  if (options.validation.every > 0 && facts.validation_cases > 0) return;
  const std::string why = options.validation.every > 0 ? "there is no case to validate with" : "validation.every is 0";
  if (options.training.early_stop > 0) notes.push_back(concat("training.early_stop has no effect: ", why));
  if (options.training.schedule == "plateau")
    notes.push_back(concat("training.schedule is plateau, but ", why, ": the learning rate stays"));
}

void add_loss(const Options& options, const PlannedRun& facts, std::vector<std::string>& notes) {
  const std::vector<LossTerm>& terms = options.loss.terms;
  for (const LossTerm& term : terms)
    if (term.start_step >= facts.total_steps)
      notes.push_back(concat("loss term ", term.name, " starts at step ", term.start_step, ", but the run has ",
                             facts.total_steps, " steps: it has no effect"));
  const auto weightless = [](const LossTerm& term) { return term.weight == 0; };
  if (!terms.empty() && std::all_of(terms.begin(), terms.end(), weightless))
    notes.push_back("every loss term has the weight 0: nothing is learned");
  if (!options.loss.deep_supervision_weights.empty() && !options.model.deep_supervision)
    notes.push_back("loss.deep_supervision_weights has no effect: model.deep_supervision is false");
}

void add_labels(const DataOptions& data, std::vector<int64_t> values, std::vector<std::string>& notes) {
  if (data.target == "regression") return;
  std::erase(values, data.ignore_label);
  if (values.empty()) notes.push_back("every voxel of the labels has the value of data.ignore_label: nothing counts");
  if (values.size() == 1)
    notes.push_back(concat("the labels hold no value but ", values.front(), ": there is nothing to tell apart"));
}

// A slip of a pen, or of an interpolation, is a class of its own where nobody said which classes there are.
void add_stray_labels(const DataOptions& data, const std::vector<PlannedRun::CaseLabels>& cases,
                      std::vector<std::string>& notes) {
  constexpr size_t kLeastCases = 3, kMostValues = 64;  // with more values they are numbers of objects
  constexpr double kStray = 1e-4;                      // of all that is labelled
  struct Use {
    int64_t voxels = 0;
    size_t cases = 0;
    std::string in;
  };
  if (data.target != "segmentation" || !data.labels.empty() || cases.size() < kLeastCases) return;
  std::map<int64_t, Use> uses;
  int64_t labelled = 0;
  for (const PlannedRun::CaseLabels& one : cases)
    for (const auto& [value, voxels] : one.counts) {
      if (value == 0 || value == data.ignore_label) continue;
      Use& use = uses[value];
      use = {use.voxels + voxels, use.cases + 1, one.id};
      labelled += voxels;
    }
  if (uses.size() > kMostValues) return;
  for (const auto& [value, use] : uses)
    if (use.cases == 1 && static_cast<double>(use.voxels) < kStray * static_cast<double>(labelled))
      notes.push_back(concat("the label value ", value, " is in ", use.voxels, use.voxels == 1 ? " voxel" : " voxels",
                             " of case ", use.in,
                             " and nowhere else, and is a class of its own; is it meant? "
                             "data.labels names the values that there may be"));
}

}  // namespace

std::vector<std::string> without_effect(const Options& options, const PlannedRun& facts) {
  std::vector<std::string> notes;
  add_schedule(options.training, facts.total_steps, notes);
  add_validation(options, facts, notes);
  add_loss(options, facts, notes);
  add_labels(options.data, facts.label_values, notes);
  add_stray_labels(options.data, facts.labels, notes);
  if (options.data.minimum_labelled > 0 && options.data.sampler != "labelled")
    notes.push_back(concat("data.minimum_labelled has no effect: data.sampler is ", options.data.sampler));
  if (options.training.cuda_graph == "on" && facts.on_cpu)
    notes.push_back("training.cuda_graph has no effect: the network trains on the CPU");
  if (options.monitor.gradient_histograms && !options.monitor.tensorboard)
    notes.push_back("monitor.gradient_histograms has no effect: monitor.tensorboard is false");
  return notes;
}

}  // namespace vox
