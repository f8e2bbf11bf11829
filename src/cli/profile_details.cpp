#include "cli/profile_details.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/text.h"

namespace vox::cli {
namespace {

constexpr double kDisturbs = 0.15;  // of the CPUs, in use by others

using nlohmann::json;

std::string column(const std::string& text, size_t width) {  // to the right
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

std::string label(std::string text, size_t width) {
  if (text.size() > width) text = text.substr(0, width - 2) + "..";
  return text + std::string(width - text.size(), ' ');
}

std::string percent(double part, double whole) {
  return concat(format_number(whole > 0 ? 100 * part / whole : 0, 1), " %");
}

json lines_json(const std::vector<StageLine>& lines) {
  json list = json::array();
  for (const StageLine& line : lines) list.push_back({{"name", line.name}, {"ms", line.ms}});
  return list;
}

struct ThreadShares {  // of the time that all data threads have
  double working = 0, blocked = 0, idle = 0;
};

ThreadShares data_threads(const StepRecord& record) {
  const double available = record.wall_ms * std::max(1, record.data_threads);
  double cpu_ms = 0;
  for (const auto& [name, stage] : record.sums.data) cpu_ms += stage.cpu_ms;
  if (available <= 0) return {};
  const double busy = std::min(1.0, record.sums.data_busy_ms / available), working = std::min(busy, cpu_ms / available);
  return {working, busy - working, 1 - busy};
}

// Of a step: how long the thread that trains waits for samples, the GPU or a checkpoint.
double training_waits(const Profile& profile) {
  double ms = 0;
  for (const char* name : {"data_wait", "sync", "checkpoint_wait"}) ms += stage_ms(profile.step_stages, name);
  return profile.step_ms > 0 ? ms / profile.step_ms : 0;
}

double per_second(double in_a_step, const Profile& profile) {
  return profile.step_ms > 0 ? 1e3 * in_a_step / profile.step_ms : 0;
}

json share_or_null(double part, double whole) {
  return whole > 0 && part > 0 ? json(part / whole) : json(nullptr);
}

json use_json(const Profile& profile) {
  const StepDetails& details = profile.record.details;
  const double flops = per_second(details.work.flops, profile), bytes = per_second(details.work.bytes, profile);
  return {{"step_flops", details.work.flops},
          {"step_bytes", details.work.bytes},
          {"flops_per_s", flops},
          {"bytes_per_s", bytes},
          {"ceiling_flops_per_s", details.ceilings.flops},
          {"ceiling_bytes_per_s", details.ceilings.bytes_per_s},
          {"flops_share", share_or_null(flops, details.ceilings.flops)},
          {"bytes_share", share_or_null(bytes, details.ceilings.bytes_per_s)}};
}

std::string use_text(const Profile& profile) {
  const StepDetails& details = profile.record.details;
  if (details.work.flops <= 0 || details.ceilings.flops <= 0) return {};
  const double flops = per_second(details.work.flops, profile), bytes = per_second(details.work.bytes, profile);
  return concat("arithmetic: ", format_number(flops / 1e9, 1), " of ", format_number(details.ceilings.flops / 1e9, 1),
                " GFLOP/s measured here (", percent(flops, details.ceilings.flops), "); memory traffic: at least ",
                format_number(bytes / 1e9, 2), " of ", format_number(details.ceilings.bytes_per_s / 1e9, 1), " GB/s (",
                percent(bytes, details.ceilings.bytes_per_s), ")\n");
}

std::string stage_lines(const std::string& title, const std::vector<StageLine>& stages) {
  double whole = 0;
  for (const StageLine& stage : stages) whole += stage.ms;
  if (whole <= 0) return {};
  std::ostringstream out;
  out << title << ": " << format_number(whole, 2) << " ms\n";
  for (const StageLine& stage : stages)
    out << "  " << label(stage.name, 22) << column(format_number(stage.ms, 2), 9) << " ms "
        << column(percent(stage.ms, whole), 7) << '\n';
  return out.str();
}

std::string operation_table(const StepRecord& record) {
  const StepDetails& details = record.details;
  if (details.slowest_operations.empty()) return {};
  std::ostringstream out;
  out << "slowest " << (record.on_gpu ? "kernels" : "operations") << " (of " << details.steps << " steps of "
      << format_number(details.step_ms, 2) << " ms under the profiler)\n  " << label("", 54)
      << " calls   ms a step   share\n";
  for (const OperationLine& line : details.slowest_operations)
    out << "  " << label(line.name, 54) << column(format_number(line.calls, 1), 6)
        << column(format_number(line.ms, 3), 12) << column(percent(line.ms, details.step_ms), 8) << '\n';
  return out.str();
}

}  // namespace

void add_details(const Profile& profile, json& document) {
  const StepRecord& record = profile.record;
  const StepDetails& details = record.details;
  json operations = json::array();
  for (const OperationLine& line : details.slowest_operations)
    operations.push_back({{"name", line.name}, {"calls", line.calls}, {"ms", line.ms}});
  document["slowest_operations"] = operations;
  document["forward_stages"] = lines_json(details.forward_stages);
  document["gpu_stages"] = lines_json(details.gpu_stages);
  document["sync_points"] = details.sync_points;
  document["traced"] = {{"steps", details.steps}, {"step_ms", details.step_ms}};
  document["achieved"] = use_json(profile);
  json kinds = json::object();
  for (const MemoryLine& line : details.memory) kinds[line.name] = line.gb;
  document["memory"]["by_kind_gb"] = kinds;
  const ThreadShares shares = data_threads(record);
  document["threads"]["data_working"] = shares.working;
  document["threads"]["data_blocked"] = shares.blocked;
  document["threads"]["data_idle"] = shares.idle;
  document["threads"]["training_waits"] = training_waits(profile);
  document["threads"]["others_cpus"] = std::max(record.others_cpus, record.others_cpus_in_trials);
  if (record.handover_ns) document["threads"]["handover_ns"] = *record.handover_ns;
  if (record.alone_ms) document["threads"]["alone_ms"] = *record.alone_ms;
  if (record.other_threads) {
    const ThreadTrial& trial = *record.other_threads;
    json tried{{"compute", trial.threads}, {"own_ms", trial.own_ms}, {"upper_quartile_ms", trial.slow_ms}};
    if (trial.handover_ns) tried["handover_ns"] = *trial.handover_ns;
    document["threads"]["tried"] = std::move(tried);
  }
}

std::string details_text(const Profile& profile) {
  const StepRecord& record = profile.record;
  const StepDetails& details = record.details;
  std::ostringstream out;
  const ThreadShares shares = data_threads(record);
  out << "threads: " << record.data_threads << " for samples (" << percent(shares.working, 1) << " working, "
      << percent(shares.blocked, 1) << " waiting for the disk, a lock or a CPU, " << percent(shares.idle, 1)
      << " with nothing to do); training waits " << percent(training_waits(profile), 1) << " of a step\n";
  const double others = std::max(record.others_cpus, record.others_cpus_in_trials);
  if (others > kDisturbs * record.cpus)
    out << "other processes kept " << format_number(others, 1) << " of " << record.cpus
        << " CPUs busy meanwhile: measure again without them before you trust a prediction\n";
  if (details.steps == 0) return out.str();
  if (record.on_gpu)
    out << "GPU: busy " << percent(record.gpu_busy.value_or(0), 1) << " of the time, "
        << format_number(details.sync_points, 1) << " synchronisation points a step\n";
  out << use_text(profile);
  std::vector<std::string> kinds;
  for (const MemoryLine& line : details.memory) kinds.push_back(concat(line.name, " ", format_number(line.gb, 3)));
  if (!kinds.empty()) out << "memory by kind, GB: " << join(kinds, ", ") << '\n';
  out << stage_lines("on the GPU, by what enqueued it", details.gpu_stages)
      << stage_lines("forward by stage", details.forward_stages) << operation_table(record);
  return out.str();
}

}  // namespace vox::cli
