#include "train/run_plan.h"

#include <ATen/Version.h>
#include <torch/torch.h>

#include <algorithm>

#include "base/error.h"
#include "config/iterations.h"
#include "train/state.h"
#include "train/team.h"
#include "volume/store.h"

namespace vox {

std::map<std::string, std::string> machine_of(const c10::Device& device, const Options& options) {
  return {{"torch", TORCH_VERSION},
          {"cpu", at::get_cpu_capability()},
          {"device", device.is_cpu() ? "cpu" : "cuda"},
          {"placement", options.data.placement}};
}

int64_t epoch_steps(const Options& options, size_t cases, double step_s) {
  const Iterations wanted = parse_iterations(options.training.iterations_per_epoch);
  if (wanted.steps) return std::max<int64_t>(1, *wanted.steps);
  if (wanted.seconds) return std::max<int64_t>(1, static_cast<int64_t>(*wanted.seconds / step_s));
  return std::max<int64_t>(1, static_cast<int64_t>(cases) * options.data.patches_per_case / samples_of_step(options));
}

int64_t last_step(const TrainState& state, const Options& options) {
  const Iterations wanted = parse_iterations(options.training.iterations_per_epoch);
  return options.training.max_epochs * wanted.steps.value_or(state.steps_per_epoch);
}

bool is_finished(const TrainState& state, const Options& options) {
  const int64_t patience = options.training.early_stop;
  if (state.stopped_early && patience > 0 && state.validations_without_gain >= patience) return true;
  return !state.epoch_open && state.step >= last_step(state, options);
}

std::vector<int64_t> class_values(const Options& options, const Store& store, int64_t label_channels) {
  std::vector<int64_t> values = options.data.labels.empty() ? store.label_values() : options.data.labels;
  std::erase(values, options.data.ignore_label);
  std::sort(values.begin(), values.end());
  const bool named = !options.data.labels.empty() || (label_channels == 1 && values.size() == 2);
  return named ? values : std::vector<int64_t>{};
}

void require_labels(const Dataset& dataset) {
  for (const std::vector<int64_t>* part : {&dataset.train, &dataset.validation})
    for (const int64_t index : *part) {
      const Case& one = dataset.cases[static_cast<size_t>(index)];
      VOX_CHECK(!one.label.empty(), "case ", one.id, " has no label, and training compares with one; set data.label",
                " (or data.cases[].label), or leave the case to data.test");
    }
}

}  // namespace vox
