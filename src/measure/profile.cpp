#include "measure/profile.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "config/write.h"
#include "measure/profile_run.h"
#include "measure/statistics.h"

namespace vox {
namespace {

// In the order of a step; loss terms follow "loss".
const std::vector<std::string>& step_order() {
  static const std::vector<std::string> order{"data_wait",     "transfer",   "forward",         "loss", "loss.",
                                              "loss_backward", "backward",   "optimizer",       "sync", "logging",
                                              "histograms",    "checkpoint", "checkpoint_wait", "other"};
  return order;
}

const std::vector<std::string>& data_order() {
  static const std::vector<std::string> order{"storage", "read", "decode", "preprocess", "fetch", "draw", "gather"};
  return order;
}

size_t place_in(const std::vector<std::string>& order, const std::string& name) {
  for (size_t i = 0; i < order.size(); ++i)
    if (order[i] == name || (order[i].ends_with('.') && name.starts_with(order[i]))) return i;
  return order.size();
}

void sort_by(const std::vector<std::string>& order, std::vector<StageLine>& stages) {
  std::stable_sort(stages.begin(), stages.end(), [&](const StageLine& a, const StageLine& b) {
    return place_in(order, a.name) < place_in(order, b.name);
  });
}

// Stages that do the same in every step are told by their median, which one disturbed step does not move; waiting and
// what happens now and then by the mean. So is everything on a GPU: the host may wait for it in any stage, and not in
// every step.
double typical_ms(const StepRecord& record, const std::string& name) {
  const std::vector<StageTable>& steps = record.sums.steps;
  static const std::set<std::string> kEven{"transfer", "forward",       "optimizer", "other",
                                           "loss",     "loss_backward", "backward"};
  std::vector<double> values;
  size_t present = 0, terms = 0;
  for (const StageTable& step : steps) {
    const auto found = step.find(name);
    values.push_back(found == step.end() ? 0 : found->second.self_ms);
    present += found != step.end();
    terms += static_cast<size_t>(
        std::count_if(step.begin(), step.end(), [](const auto& stage) { return stage.first.starts_with("loss."); }));
  }
  const bool same_terms = terms % steps.size() == 0;  // no term that comes every few steps
  const bool even = !record.on_gpu && (kEven.contains(name) || name.starts_with("loss."));
  return even && same_terms && present == steps.size() ? median_of(values) : mean_of(values);
}

void add_sync(std::vector<StageLine>& lines, double ms) {
  auto sync = std::find_if(lines.begin(), lines.end(), [](const StageLine& one) { return one.name == "sync"; });
  if (sync == lines.end()) sync = lines.insert(lines.end(), StageLine{"sync", 0});
  sync->ms += ms;
}

// While the host waits for samples, a GPU may still compute the steps before: samples are charged with what the step
// takes longer than without waiting for them, the GPU with the rest.
void leave_to_gpu(const StepRecord& record, std::vector<StageLine>& lines) {
  if (!record.on_gpu || !record.alone_ms) return;
  double step_ms = 0;
  for (const StageLine& line : lines) step_ms += line.ms;
  const double idle_ms = std::max(0.0, step_ms - *record.alone_ms);
  for (StageLine& line : lines) {
    if (line.name != "data_wait" || line.ms <= idle_ms) continue;
    const double computed_ms = line.ms - idle_ms;
    line.ms = idle_ms;
    add_sync(lines, computed_ms);
    return;
  }
}

// A loss term that reads a value back makes the host wait for everything that the GPU was given before, which is no
// work of the term. The GPU's clock starts when that is done, and runs on while the host works for the term: what a
// span has beyond it is waiting. A term that this clock does not know is not believed to be more than that.
void leave_waits_to_gpu(const StepRecord& record, std::vector<StageLine>& lines) {
  if (!record.on_gpu) return;
  double waited_ms = 0;
  for (StageLine& line : lines) {
    if (!line.name.starts_with("loss.")) continue;
    const double own_ms = std::min(line.ms, stage_ms(record.gpu_terms, line.name));
    waited_ms += line.ms - own_ms;
    line.ms = own_ms;
  }
  if (waited_ms > 0) add_sync(lines, waited_ms);
}

std::vector<StageLine> step_lines(const StepRecord& record, const Options& options) {
  std::set<std::string> names;
  for (const StageTable& step : record.sums.steps)
    for (const auto& [name, stage] : step) names.insert(name);
  std::vector<StageLine> lines;
  for (const std::string& name : names) lines.push_back({name, typical_ms(record, name)});
  if (record.checkpoint_ms && record.steps_per_epoch > 0)
    lines.push_back({"checkpoint", *record.checkpoint_ms / steps_between_checkpoints(record, options)});
  leave_to_gpu(record, lines);
  leave_waits_to_gpu(record, lines);
  sort_by(step_order(), lines);
  return lines;
}

std::vector<StageLine> data_lines(const StepRecord& record) {
  std::vector<StageLine> lines;
  for (const auto& [name, stage] : record.sums.data) {
    // What waits for a lock or a CPU is no work; what waits for the disk is its time.
    const double ms = name == "storage" ? stage.self_ms : stage.cpu_ms;
    lines.push_back(
        {name == "sample_fill" || name == "sample_read" ? "other_data" : name, ms / static_cast<double>(record.steps)});
  }
  std::map<std::string, double> sums;
  for (const StageLine& line : lines) sums[line.name] += line.ms;
  lines.clear();
  for (const auto& [name, ms] : sums) lines.push_back({name, ms});
  sort_by(data_order(), lines);
  return lines;
}

std::optional<double> cost_of_miss(const StepRecord& record) {
  const int64_t misses = record.after.misses - record.before.misses;
  if (misses == 0) return std::nullopt;
  double total = 0;
  for (const char* name : {"storage", "read", "decode", "preprocess"}) {
    const auto found = record.sums.data.find(name);
    if (found != record.sums.data.end()) total += found->second.self_ms;
  }
  return total / static_cast<double>(misses);
}

}  // namespace

double stage_ms(const std::vector<StageLine>& stages, const std::string& name) {
  for (const StageLine& stage : stages)
    if (stage.name == name) return stage.ms;
  return 0;
}

std::vector<double> own_ms_of(const std::vector<StageTable>& steps) {
  std::vector<double> own;
  for (const StageTable& step : steps) {
    double total = 0;
    for (const auto& [name, stage] : step)
      if (name != "data_wait" && !name.starts_with("checkpoint") && name != "logging" && name != "histograms")
        total += stage.self_ms;
    own.push_back(total);
  }
  return own;
}

int most_data_threads(Options options, ComputeOn where) {
  options.data.num_workers = kUnbounded;
  return plan_threads(options, where).data;
}

std::optional<double> checkpoint_write_ms(const StepRecord& record) {
  const auto written = record.sums.background.find("checkpoint_write");
  if (written == record.sums.background.end() || written->second.count == 0) return record.checkpoint_write_ms;
  return written->second.self_ms / static_cast<double>(written->second.count);
}

double foreseen_between_checkpoints(const StepRecord& record, const Options& options, double step_ms) {
  constexpr double kWritingShare = 10;  // as many times as the last one took to write pass before the next, at least
  const auto epoch = static_cast<double>(std::max<int64_t>(1, record.steps_per_epoch));
  const double pause_ms = kWritingShare * checkpoint_write_ms(record).value_or(0);
  double epochs = step_ms > 0 ? std::max(1.0, std::ceil(pause_ms / (epoch * step_ms))) : 1;
  if (options.training.save_every > 0) epochs = std::min(epochs, static_cast<double>(options.training.save_every));
  return epochs * epoch;
}

double steps_between_checkpoints(const StepRecord& record, const Options& options) {
  int64_t saved = 0;
  for (const StageTable& step : record.sums.steps)
    if (const auto found = step.find("checkpoint"); found != step.end()) saved += found->second.count;
  if (saved > 0) return static_cast<double>(record.steps) / static_cast<double>(saved);
  return foreseen_between_checkpoints(record, options, record.wall_ms / static_cast<double>(record.steps));
}

std::vector<std::string> overrides_between(const Options& before, const Options& after) {
  Writer old_values, new_values;
  Options(before).describe(old_values);
  Options(after).describe(new_values);
  std::vector<std::string> changes;
  for (size_t i = 0; i < old_values.values().size(); ++i) {
    const auto& [key, value] = new_values.values()[i];
    if (!(old_values.values()[i].second == value)) changes.push_back(concat(key, "=", flow_text(value)));
  }
  return changes;
}

Profile conclude(StepRecord record, const Options& options) {
  VOX_CHECK(record.steps > 0 && !record.sums.steps.empty(), "stopped before a step was measured");
  Profile profile;
  profile.record = std::move(record);
  profile.step_stages = step_lines(profile.record, options);
  profile.data_stages = data_lines(profile.record);
  for (const StageLine& stage : profile.step_stages) profile.step_ms += stage.ms;
  profile.data_wait_ms = stage_ms(profile.step_stages, "data_wait");
  profile.own_ms = profile.step_ms - profile.data_wait_ms;
  profile.miss_ms = cost_of_miss(profile.record);
  profile.bottleneck = find_bottleneck(profile, options);
  profile.suggestions = suggest_changes(profile, options);
  return profile;
}

Profile profile_recipe(const ProfileRequest& request) {
  const bool data_only = request.part == ProfilePart::kDataOnly;
  return conclude(data_only ? record_data(request) : record_steps(request), request.config.options);
}

}  // namespace vox
