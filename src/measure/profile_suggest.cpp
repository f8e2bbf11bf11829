// Changes that the model says would help, each with what it predicts.
#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "config/iterations.h"
#include "losses/loss.h"
#include "measure/profile_model.h"

namespace vox {
namespace {

constexpr double kWorthwhile = 0.97;  // of the step: what brings less is not worth a change

class Suggester {
 public:
  Suggester(const Profile& profile, const Options& options)
      : profile_(profile),
        record_(profile.record),
        options_(options),
        model_(profile, options),
        times_(cause_times(profile)) {}

  std::vector<Suggestion> all() {
    workers();
    prefetch();
    cache();
    compute_threads();
    logging();
    checkpoint();
    recompute();
    loss_every();
    transform_off();
    std::stable_sort(found_.begin(), found_.end(), [](const Suggestion& a, const Suggestion& b) {
      if (a.same_result != b.same_result) return a.same_result;
      return a.predicted_step_ms < b.predicted_step_ms;
    });
    return std::move(found_);
  }

 private:
  void add(const Options& changed, const WhatIf& what_if, const std::string& why, bool same_result = true) {
    add_changes(overrides_between(options_, changed), what_if, why, same_result);
  }

  void add_changes(std::vector<std::string> changes, const WhatIf& what_if, const std::string& why, bool same_result) {
    const double predicted = model_.predict(what_if);
    if (changes.empty() || predicted > kWorthwhile * profile_.step_ms) return;
    found_.push_back({std::move(changes), predicted, why, same_result});
  }

  void workers() {
    if (record_.sums.sample_ms.empty()) return;
    const bool waits_for_disk = times_.storage_wait > 0.4 * times_.data();  // threads that wait cost no CPU
    const int wanted = waits_for_disk ? 8 * record_.cpus : std::max(1, record_.cpus);
    const int most = std::min(wanted, record_.most_data_threads);
    int best = record_.data_threads;
    double best_ms = model_.predict({});
    for (int count = 1; count <= most; count = count < 4 ? count + 1 : count * 3 / 2) {
      const double ms = model_.predict({.workers = count});
      const bool faster = ms < 0.97 * best_ms, fewer = count < best && ms < 1.03 * best_ms;
      if (!faster && !(fewer && record_.data_threads > record_.cpus)) continue;
      best = count;
      best_ms = std::min(ms, best_ms);
    }
    if (best == record_.data_threads) return;
    Options changed = options_;
    changed.data.num_workers = best;
    const WhatIf what_if{.workers = best};
    if (best < record_.data_threads && profile_.bottleneck.name == "oversubscription")
      found_.push_back(
          {overrides_between(options_, changed), model_.predict(what_if), "as many threads as CPUs", true});
    else
      add(changed, what_if, concat(best, " threads make samples at once"));
  }

  void prefetch() {
    if (record_.sums.sample_ms.empty()) return;
    int64_t best = options_.data.prefetch_factor;
    double best_ms = model_.predict({});
    for (const int64_t count : {int64_t{2}, int64_t{4}, int64_t{8}, int64_t{16}}) {
      const double ms = model_.predict({.prefetch = count});
      if (count <= best || ms >= kWorthwhile * best_ms) continue;
      best = count;
      best_ms = ms;
    }
    Options changed = options_;
    changed.data.prefetch_factor = best;
    add(changed, {.prefetch = best}, "more batches ahead bridge samples that take long");
  }

  void cache() {
    const int64_t misses = record_.after.misses - record_.before.misses;
    const std::optional<double> whole = whole_cache_gb(record_, options_);
    if (misses > 0 && !record_.after.in_memory && whole) {
      Options changed = options_;
      changed.data.cache_gb = *whole;
      if (changed.data.placement == "disk") changed.data.placement = record_.on_gpu ? "auto" : "host";
      add(changed, {.data_ms_saved = times_.storage + times_.read + times_.decode + times_.preprocess},
          "all volumes stay in memory");
    }
    if (times_.preprocess > 0 && !options_.data.cache_preprocessed) {
      Options changed = options_;
      changed.data.cache_preprocessed = true;
      add(changed, {.data_ms_saved = times_.preprocess}, "preprocessed volumes are kept on disk");
    }
  }

  void compute_threads() {
    if (!record_.other_threads) return;
    const ThreadTrial& trial = *record_.other_threads;
    const double own_ms = profile_.own_ms - times_.logging - times_.checkpoint;  // the trial was timed without
    if (trial.slow_ms > kWorthwhile * own_ms) return;                            // faster now and then is no gain
    Options changed = options_;
    changed.system.compute_threads = trial.threads;
    const int before = most_data_threads(options_, ComputeOn::kCpu), left = most_data_threads(changed, ComputeOn::kCpu);
    const int workers = left < before ? std::min(left, record_.data_threads) : 0;
    add(changed, {.workers = workers, .own_ms_saved = own_ms - trial.own_ms}, "measured with so many threads");
  }

  // The step itself, as rows and checkpoints leave it while there are none.
  double undisturbed_ms() const {
    const double between_ms = profile_.own_ms - times_.logging - times_.checkpoint;
    return std::min(between_ms, record_.quiet_ms.value_or(between_ms));
  }

  void logging() {
    const double histograms = stage_ms(profile_.step_stages, "histograms");
    const double rows = stage_ms(profile_.step_stages, "logging");
    Options changed = options_;
    changed.monitor.gradient_histograms = false;
    add(changed, {.own_ms_saved = histograms}, "no histograms of gradients");
    changed = options_;
    changed.monitor.log_every *= 10;
    const double left_ms = undisturbed_ms() + times_.checkpoint + times_.logging - 0.9 * rows;
    add(changed, {.own_ms_saved = rows > 0 ? profile_.own_ms - left_ms : 0}, "a tenth of the rows");
  }

  // Who asked for a checkpoint every few epochs keeps fewer; else epochs are longer, and as many fewer.
  Options with_rarer_checkpoints(int64_t factor) const {
    Options changed = options_;
    TrainingOptions& training = changed.training;
    if (training.save_every > 0) {
      training.save_every *= factor;
      return changed;
    }
    training.iterations_per_epoch = concat(factor * record_.steps_per_epoch);
    training.max_epochs = std::max<int64_t>(1, training.max_epochs / factor);
    return changed;
  }

  // A checkpoint costs its snapshot, and what is left of writing the one before.
  void checkpoint() {
    if (times_.checkpoint <= 0 || record_.steps_per_epoch <= 0) return;
    const bool asked_for = options_.training.save_every > 0;
    const double write_ms = checkpoint_write_ms(record_).value_or(0);
    const double plain_ms = undisturbed_ms() + times_.logging;
    const double now = steps_between_checkpoints(record_, options_);
    const double snapshot_ms = stage_ms(profile_.step_stages, "checkpoint") * now;
    double with_ms = 0, steps = 0, before = 0;
    int64_t factor = 1;
    Options changed;
    do {
      factor *= 10;
      changed = with_rarer_checkpoints(factor);
      before = steps;
      steps = foreseen_between_checkpoints(record_, changed, plain_ms);
      if (!asked_for) steps = std::max(steps, static_cast<double>(factor * record_.steps_per_epoch));
      with_ms = std::max(plain_ms + snapshot_ms / steps, write_ms / steps);
    } while (with_ms > 1.1 * plain_ms && factor < 1000 && steps > before);
    const auto written = record_.sums.background.find("checkpoint_write");
    const bool seen = written != record_.sums.background.end();
    const double write_cpu_ms = seen ? written->second.cpu_ms / static_cast<double>(record_.steps) : 0;
    const WhatIf rarer{.own_ms_saved = profile_.own_ms - with_ms,
                       .background_cpu_ms_saved = std::max(0.0, 1 - now / steps) * write_cpu_ms};
    add(changed, rarer,
        asked_for ? "fewer of the checkpoints that training.save_every asks for"
                  : "a checkpoint ends an epoch, and so does a validation: longer epochs have fewer",
        /*same_result=*/asked_for || changed.training.max_epochs * factor == options_.training.max_epochs);
  }

  void recompute() {
    if (!options_.model.use_checkpoint) return;
    Options changed = options_;
    changed.model.use_checkpoint = false;
    add(changed, {.own_ms_saved = stage_ms(profile_.step_stages, "forward")},
        "the backward pass need not compute the forward pass again; takes more memory");
  }

  void loss_every() {
    const std::string term = costliest_loss(profile_);
    const double forward = stage_ms(profile_.step_stages, term);
    if (term == "loss" || forward < 0.05 * profile_.step_ms) return;
    const double all = times_.loss - stage_ms(profile_.step_stages, "loss_backward");
    const double backward = stage_ms(profile_.step_stages, "loss_backward") * (all > 0 ? forward / all : 0);
    Options changed = options_;
    for (LossTerm& one : changed.loss.terms)
      if ("loss." + one.name == term) {
        one.every = 4 * steps_between(one);
        add(changed, {.own_ms_saved = 0.75 * (forward + backward)},
            concat(one.name, " every ", one.every, " steps, its weight kept in the mean"), false);
        return;
      }
  }

  void transform_off() {
    const std::string transform = costliest_transform(profile_);
    if (transform.empty()) return;
    add_changes({concat("augmentation.", transform, ".enabled=false")},
                {.data_ms_saved = stage_ms(profile_.data_stages, transform)}, concat("without ", transform), false);
  }

  const Profile& profile_;
  const StepRecord& record_;
  const Options& options_;
  StepModel model_;
  CauseTimes times_;
  std::vector<Suggestion> found_;
};

}  // namespace

std::vector<Suggestion> suggest_changes(const Profile& profile, const Options& options) {
  return Suggester(profile, options).all();
}

}  // namespace vox
