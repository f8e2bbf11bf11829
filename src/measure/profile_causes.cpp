// One cause, and the sentence that shows it.
#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "measure/profile_model.h"

namespace vox {
namespace {

constexpr double kOverhead = 0.25;    // of a step: what is not learning and takes so much is the cause
constexpr double kLossLimit = 0.4;    // a loss that takes so much of a step
constexpr double kFasterWith = 0.95;  // of its time: a step that fewer threads shorten so far had too many
constexpr double kStarved = 0.5;      // of the time that threads are at work

std::string in_ms(double ms) {
  return concat(format_number(ms, ms < 10 ? 2 : 1), " ms");
}

std::string share_of(double part, double whole) {
  return concat(format_number(whole > 0 ? 100 * part / whole : 0, 0), " %");
}

double busy_share(const StepRecord& record) {
  const double available = record.wall_ms * std::max(1, record.data_threads);
  return available > 0 ? std::min(1.0, record.sums.data_busy_ms / available) : 0;
}

// Of the time that data threads are at work: how much they wait for a CPU or a lock.
double starved_share(const StepRecord& record) {
  double work = 0;
  for (const double ms : record.sums.sample_ms) work += ms;
  return record.sums.data_busy_ms > 0 ? std::max(0.0, 1 - work / record.sums.data_busy_ms) : 0;
}

std::string waiting_sentence(const Profile& profile) {
  const StepRecord& record = profile.record;
  return concat("training waits ", in_ms(profile.data_wait_ms), " of ", in_ms(profile.step_ms), " a step (",
                share_of(profile.data_wait_ms, profile.step_ms), ") for data, while ", record.data_threads,
                record.data_threads == 1 ? " thread is" : " threads are", " at work ", share_of(busy_share(record), 1),
                " of the time");
}

std::string cache_sentence(const Profile& profile) {
  const StoreCounts &before = profile.record.before, &after = profile.record.after;
  const int64_t misses = after.misses - before.misses, hits = after.hits - before.hits;
  return concat(misses, " of ", misses + hits, " blocks were not in memory, each ", in_ms(profile.miss_ms.value_or(0)),
                "; the volumes are ", human_bytes(after.volume_bytes), " in all");
}

Bottleneck data_cause(const Profile& profile, const Options& options) {
  const CauseTimes times = cause_times(profile);
  const StepRecord& record = profile.record;
  const std::string waiting = waiting_sentence(profile);
  const auto of_samples = [&](double ms) {
    return concat(in_ms(ms), " of ", in_ms(times.data()), " of a step's samples");
  };
  const double reading = times.storage + times.read;
  const double most = std::max({reading, times.decode, times.preprocess, times.augment});
  if (most == reading && !record.after.in_memory && whole_cache_gb(record, options))
    return {"cache", concat(waiting, "; reading what data.cache_gb=", shortest(options.data.cache_gb),
                            " does not hold is ", of_samples(reading), "; ", cache_sentence(profile))};
  if (most == reading || times.storage_wait > 0.4 * times.data())
    return {"storage", concat(waiting, "; reading from the disk is ", of_samples(reading), ", ",
                              in_ms(times.storage_wait), " of it waiting; ", cache_sentence(profile))};
  if (most == times.preprocess)
    return {"preprocess",
            concat(waiting, "; data.preprocess is ", of_samples(times.preprocess), "; ", cache_sentence(profile))};
  if (most == times.decode)
    return {"decode", concat(waiting, "; decoding files is ", of_samples(times.decode), "; ", cache_sentence(profile))};
  if (record.data_threads > record.cpus && starved_share(record) > kStarved)
    return {"oversubscription",
            concat(waiting, ", but ", share_of(starved_share(record), 1), " of that they wait for one of ", record.cpus,
                   " CPUs: ", record.data_threads, " data threads are too many")};
  const std::string transform = costliest_transform(profile);
  const double gather = stage_ms(profile.data_stages, "gather");
  const double costliest = transform.empty() ? 0 : stage_ms(profile.data_stages, transform);
  const std::string where =
      costliest > gather ? concat(transform, " ", in_ms(costliest)) : concat("gather ", in_ms(gather));
  const std::string work = concat("; augmentation is ", of_samples(times.augment), " (", where, ")");
  if (record.data_threads < record.cpus && idle_cpus(profile) > 0.25)
    return {"threads", concat(waiting, work, " and ", share_of(idle_cpus(profile), 1), " of ", record.cpus,
                              " CPUs idle: too few data threads")};
  return {"augment", concat(waiting, work)};
}

Bottleneck network_cause(const Profile& profile, const CauseTimes& times) {
  const StepRecord& record = profile.record;
  std::string evidence =
      concat("forward, backward and optimizer take ", in_ms(times.network), " of ", in_ms(profile.step_ms), " a step (",
             share_of(times.network, profile.step_ms), "); training waits ", in_ms(profile.data_wait_ms), " for data");
  if (!record.on_gpu) {
    evidence += concat("; the network computes on ", record.compute_threads,
                       record.compute_threads == 1 ? " CPU thread here" : " CPU threads here");
    return {"gpu_compute", evidence};
  }
  const StepDetails& details = record.details;
  if (details.ceilings.flops <= 0 || details.ceilings.bytes_per_s <= 0 || details.work.flops <= 0)
    return {"gpu_compute", evidence};
  const double compute_ms = 1e3 * details.work.flops / details.ceilings.flops;
  const double traffic_ms = 1e3 * details.work.bytes / details.ceilings.bytes_per_s;
  evidence += concat("; at this GPU's own rates its arithmetic alone would take ", in_ms(compute_ms),
                     " and its memory traffic at least ", in_ms(traffic_ms));
  return {traffic_ms > compute_ms ? "gpu_bandwidth" : "gpu_compute", evidence};
}

}  // namespace

Bottleneck find_bottleneck(const Profile& profile, const Options& options) {
  const CauseTimes times = cause_times(profile);
  const StepRecord& record = profile.record;
  const double most_overhead = std::max({times.wait, times.transfer, times.sync, times.logging, times.checkpoint});
  const auto overhead = [&](double ms) {
    return ms == most_overhead && ms > kOverhead * profile.step_ms && !(times.loss > std::max(ms, times.network));
  };
  const auto of_step = [&](double ms) {
    return concat(in_ms(ms), " of ", in_ms(profile.step_ms), " a step (", share_of(ms, profile.step_ms), ")");
  };
  if (record.other_threads && record.compute_threads > record.cpus &&
      record.other_threads->own_ms < kFasterWith * profile.own_ms)
    return {"oversubscription", concat("the step itself takes ", in_ms(profile.own_ms), " on ", record.compute_threads,
                                       " compute threads and ", in_ms(record.other_threads->own_ms), " on ",
                                       record.other_threads->threads, "; there are ", record.cpus, " CPUs")};
  if (overhead(times.checkpoint))
    return {"checkpoint", concat("saving takes ", of_step(times.checkpoint), ": one checkpoint every ",
                                 format_number(steps_between_checkpoints(record, options), 0), " steps, of which ",
                                 in_ms(stage_ms(profile.step_stages, "checkpoint_wait")),
                                 " a step wait for the one before to be written")};
  if (overhead(times.logging))
    return {"logging",
            concat("logging takes ", of_step(times.logging), ", ", in_ms(stage_ms(profile.step_stages, "histograms")),
                   " of it histograms; log_every is ", options.monitor.log_every)};
  if (overhead(times.wait)) return data_cause(profile, options);
  if (overhead(times.transfer))
    return {"transfer", concat("copying batches to the GPU takes ", of_step(times.transfer))};
  if (overhead(times.sync))
    return {"sync", concat("waiting for the GPU to hand out losses takes ", of_step(times.sync))};
  if (times.loss > kLossLimit * profile.step_ms || times.loss > times.network) {
    const std::string term = costliest_loss(profile);
    return {"loss",
            concat("the losses take ", of_step(times.loss), ", with their part of the backward pass; ", term, " alone ",
                   in_ms(stage_ms(profile.step_stages, term)), " forward; the network ", in_ms(times.network))};
  }
  return network_cause(profile, times);
}

}  // namespace vox
