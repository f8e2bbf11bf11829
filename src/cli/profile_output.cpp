#include "cli/profile_output.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/text.h"
#include "cli/profile_details.h"
#include "measure/profile_model.h"

namespace vox::cli {
namespace {

using nlohmann::json;

json optional_number(const std::optional<double>& value) {
  return value ? json(*value) : json(nullptr);
}

std::string padded(const std::string& text, size_t width) {
  return text.size() < width ? text + std::string(width - text.size(), ' ') : text;
}

std::string right(const std::string& text, size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

std::string ms_text(double ms) {
  return right(format_number(ms, ms < 100 ? 2 : 1), 9);
}

// Bars begin where the one before ended: the step from left to right.
std::string stage_table(const std::vector<StageLine>& stages, double whole, bool cumulative) {
  constexpr double kWidth = 40;
  std::ostringstream out;
  double before = 0;
  for (const StageLine& stage : stages) {
    if (stage.ms < 0.0005 * whole) continue;
    const double share = whole > 0 ? stage.ms / whole : 0;
    const auto lead = static_cast<size_t>(cumulative && whole > 0 ? before / whole * kWidth : 0);
    const auto length = static_cast<size_t>(std::max(1.0, share * kWidth + 0.5));
    out << "  " << padded(stage.name, 22) << ms_text(stage.ms) << " ms " << right(format_number(100 * share, 1), 5)
        << " %  " << std::string(lead, ' ') << std::string(length, '#') << '\n';
    before += stage.ms;
  }
  return out.str();
}

json stage_object(const std::vector<StageLine>& stages) {
  json object = json::object();
  for (const StageLine& stage : stages) object[stage.name] = stage.ms;
  return object;
}

json stage_list(const std::vector<StageLine>& stages) {  // in the order of a step
  json list = json::array();
  for (const StageLine& stage : stages) list.push_back({{"name", stage.name}, {"ms", stage.ms}});
  return list;
}

json suggestions_json(const Profile& profile) {
  json list = json::array();
  for (const Suggestion& one : profile.suggestions)
    list.push_back({{"change", join(one.changes, " ")},
                    {"changes", one.changes},
                    {"predicted_step_ms", one.predicted_step_ms},
                    {"why", one.why},
                    {"same_result", one.same_result}});
  return list;
}

double samples_per_s(const Profile& profile) {
  const StepRecord& record = profile.record;
  return 1e3 * static_cast<double>(record.micro_batch * record.accumulation) / profile.step_ms;
}

}  // namespace

json to_json(const Profile& profile) {
  const StepRecord& record = profile.record;
  json stages = stage_object(profile.step_stages);
  stages.update(stage_object(profile.data_stages));
  const double available = record.wall_ms * std::max(1, record.data_threads);
  json document = {
      {"step_ms", profile.step_ms},
      {"data_wait_ms", profile.data_wait_ms},
      {"gpu_busy", optional_number(record.gpu_busy)},
      {"stages", stages},
      {"step_stages", stage_object(profile.step_stages)},
      {"data_stages", stage_object(profile.data_stages)},
      {"waterfall", {{"step", stage_list(profile.step_stages)}, {"data", stage_list(profile.data_stages)}}},
      {"bottleneck", {{"name", profile.bottleneck.name}, {"evidence", profile.bottleneck.evidence}}},
      {"suggestions", suggestions_json(profile)},
      {"samples_per_s", samples_per_s(profile)},
      {"steps", record.steps},
      {"warm_up", record.warm_up},
      {"device", record.on_gpu ? "cuda" : "cpu"},
      {"threads",
       {{"cpus", record.cpus},
        {"data", record.data_threads},
        {"compute", record.compute_threads},
        {"data_busy", available > 0 ? std::min(1.0, record.sums.data_busy_ms / available) : 0.0},
        {"cpus_idle", idle_cpus(profile)}}},
      {"cache",
       {{"hits", record.after.hits - record.before.hits},
        {"misses", record.after.misses - record.before.misses},
        {"miss_ms", optional_number(profile.miss_ms)},
        {"volume_bytes", record.after.volume_bytes},
        {"in_memory", record.after.in_memory},
        {"bytes_read", record.after.bytes_read - record.before.bytes_read}}},
      {"memory",
       {{"host_rss_gb", record.rss_gb},
        {"host_peak_gb", record.rss_peak_gb},
        {"store_gb", static_cast<double>(record.after.resident_peak) / 1e9},
        {"gpu_gb", optional_number(record.gpu_mem_gb)},
        {"gpu_total_gb", optional_number(record.gpu_total_gb)}}},
      {"losses", record.losses}};
  add_details(profile, document);
  return document;
}

json to_json(const Comparison& comparison) {
  return {{"ratio", comparison.ratio},
          {"interval", {comparison.interval.low, comparison.interval.high}},
          {"rounds", comparison.ratios.size()},
          {"first_step_ms", median_of(comparison.first_ms)},
          {"second_step_ms", median_of(comparison.second_ms)}};
}

std::string waterfall(const Profile& profile) {
  const StepRecord& record = profile.record;
  double data_total = 0;
  for (const StageLine& stage : profile.data_stages) data_total += stage.ms;
  std::ostringstream out;
  out << "step " << format_number(profile.step_ms, 2) << " ms, " << format_number(samples_per_s(profile), 2)
      << " samples/s (" << record.steps << " steps after " << record.warm_up << " to warm up, on "
      << (record.on_gpu ? "a GPU" : "the CPU") << ")\n"
      << stage_table(profile.step_stages, profile.step_ms, true);
  if (data_total > 0)
    out << "samples, beside the step: " << format_number(data_total, 2) << " ms of work a step on "
        << record.data_threads << (record.data_threads == 1 ? " thread\n" : " threads\n")
        << stage_table(profile.data_stages, data_total, true);
  const int64_t hits = record.after.hits - record.before.hits, misses = record.after.misses - record.before.misses;
  out << "cache: " << hits << " blocks found, " << misses << " not";
  if (profile.miss_ms) out << ", " << format_number(*profile.miss_ms, 2) << " ms each";
  out << "; CPUs: " << record.cpus << ", " << format_number(100 * idle_cpus(profile), 0)
      << " % idle; memory: " << format_number(record.rss_peak_gb, 2) << " GB at most\n"
      << details_text(profile) << "\nbottleneck: " << profile.bottleneck.name << "\n  " << profile.bottleneck.evidence
      << "\n";
  if (!profile.suggestions.empty()) out << "\nwhat would help, as the measured times predict:\n";
  for (const Suggestion& one : profile.suggestions)
    out << ms_text(one.predicted_step_ms) << " ms  (" << format_number(profile.step_ms / one.predicted_step_ms, 2)
        << "x)  " << join(one.changes, " ") << "\n               " << one.why
        << (one.same_result ? "" : "; changes what is learnt") << '\n';
  return out.str();
}

std::string comparison_text(const Comparison& comparison, const std::string& first, const std::string& second) {
  std::ostringstream out;
  out << first << "  " << format_number(median_of(comparison.first_ms), 2) << " ms a step\n"
      << second << "  " << format_number(median_of(comparison.second_ms), 2) << " ms a step\n"
      << "ratio " << format_number(comparison.ratio, 3) << " (" << coverage_text(comparison.ratios.size()) << ": "
      << format_number(comparison.interval.low, 3) << " to " << format_number(comparison.interval.high, 3) << ", "
      << comparison.ratios.size() << " rounds in turns)\n";
  return out.str();
}

}  // namespace vox::cli
