#include "train/run_plan.h"

#include <ATen/Version.h>
#include <torch/torch.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
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

namespace {

// At which training.max_epochs end; `state` has the steps of an epoch where the options give no number. 0: not known.
int64_t last_step(const TrainState& state, const Options& options) {
  const Iterations wanted = parse_iterations(options.training.iterations_per_epoch);
  return options.training.max_epochs * wanted.steps.value_or(state.steps_per_epoch);
}

bool stays_stopped(const TrainState& state, const Options& options) {
  const int64_t patience = options.training.early_stop;
  return state.stopped_early && patience > 0 && state.validations_without_gain >= patience;
}

bool is_over(const TrainState& state, const Options& options) {
  const int64_t last = last_step(state, options);
  return last > 0 && !state.epoch_open && state.step >= last;
}

}  // namespace

bool is_finished(const TrainState& state, const Options& options) {
  return stays_stopped(state, options) || is_over(state, options);
}

std::string why_early(const TrainState& state, const Options& options) {
  if (!stays_stopped(state, options)) return "";
  const int64_t count = state.validations_without_gain;
  return concat("training.early_stop: ", options.validation.metric, " no better in ", count,
                count == 1 ? " validation" : " validations");
}

std::string standing(const TrainState& state, const Options& options) {
  const std::string early = why_early(state, options);
  std::string text = concat(" at step ", state.step, early.empty() ? "" : concat(" (", early, ")"));
  if (state.best_score)
    text += concat("; best ", options.validation.metric, " ", format_number(*state.best_score, 4), " at step ",
                   state.best_step);
  return text;
}

std::string how_to_go_on(const TrainState& state, const Options& options) {
  const int64_t last = last_step(state, options);  // of shorter epochs it may be an earlier one
  const bool early = stays_stopped(state, options), over = is_over(state, options);
  std::vector<std::string> raise;
  if (early) raise.push_back(concat("training.early_stop (now ", options.training.early_stop, ", 0 is off)"));
  if (over || !early) raise.push_back(concat("training.max_epochs (now ", options.training.max_epochs, ")"));
  const std::string epochs = state.steps_per_epoch > 0 ? concat(state.epoch(), " epochs, ") : "";
  return concat("(", epochs, "step ", state.step, over && last < state.step ? concat(" of ", last) : "",
                "). To go on, raise ", join(raise, " and "), " and add --force.");
}

std::vector<int64_t> class_values(const Options& options, const Store& store, int64_t label_channels) {
  std::vector<int64_t> values = options.data.labels.empty() ? store.label_values() : options.data.labels;
  std::erase(values, options.data.ignore_label);
  std::sort(values.begin(), values.end());
  const bool named = !options.data.labels.empty() || (label_channels == 1 && values.size() == 2);
  return named ? values : std::vector<int64_t>{};
}

void note_cases(const Store& store, TrainState& state) {
  const Dataset& dataset = store.dataset();
  const auto ids_of = [&](const std::vector<int64_t>& part) {
    std::vector<std::string> ids;
    for (const int64_t index : part) ids.push_back(utf8(dataset.cases[static_cast<size_t>(index)].id));
    return ids;
  };
  state.training_cases = ids_of(dataset.train);
  state.validation_cases = ids_of(dataset.validation);
  state.skipped_cases.clear();
  for (const SkippedCase& skipped : store.skipped()) state.skipped_cases.push_back(utf8(skipped.id));
}

uint64_t key_of_cases(const Store& store) {
  ContentHash key;
  for (const int64_t index : store.dataset().train) key.add(store.dataset().cases[static_cast<size_t>(index)].id);
  return key.value();
}

namespace {

// Those of `ids` that `others` do not have; the first few by name.
std::string only_in(std::vector<std::string> ids, const std::vector<std::string>& others) {
  constexpr size_t kNamed = 5;
  const std::set<std::string> known(others.begin(), others.end());
  std::erase_if(ids, [&](const std::string& id) { return known.contains(id); });
  const size_t count = ids.size();
  ids.resize(std::min(count, kNamed));
  return concat(join(ids, ", "), count > kNamed ? concat(" and ", count - kNamed, " more") : "");
}

}  // namespace

std::string changed_cases(const TrainState& before, const TrainState& now) {
  std::vector<std::string> changes;
  const auto compare = [&](const char* what, const std::vector<std::string>& of_before,
                           const std::vector<std::string>& of_now) {
    if (const std::string added = only_in(of_now, of_before); !added.empty())
      changes.push_back(concat(what, " now: ", added));
    if (const std::string gone = only_in(of_before, of_now); !gone.empty())
      changes.push_back(concat(what, " no longer: ", gone));
  };
  compare("left out", before.skipped_cases, now.skipped_cases);
  if (before.training_cases.empty()) return join(changes, "; ");
  compare("trained on", before.training_cases, now.training_cases);
  compare("validated with", before.validation_cases, now.validation_cases);
  return join(changes, "; ");
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
