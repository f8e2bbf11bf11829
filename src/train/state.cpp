#include "train/state.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "config/config.h"

namespace vox {
namespace {

using Json = nlohmann::json;

constexpr const char* kFormat = "1";

Json to_json(const MeanOf& mean) {
  return {{"sum", mean.sum}, {"count", mean.count}};
}
MeanOf mean_of(const Json& json) {
  return {json.at("sum").get<double>(), json.at("count").get<int64_t>()};
}

Json to_json(const EpochSums& sums) {
  Json terms = Json::object();
  for (const auto& [name, mean] : sums.terms) terms[name] = to_json(mean);
  return {{"loss", to_json(sums.loss)}, {"terms", terms}, {"seconds", sums.seconds}, {"data_wait_s", sums.data_wait_s}};
}
EpochSums epoch_sums_of(const Json& json) {
  EpochSums sums{.loss = mean_of(json.at("loss")),
                 .terms = {},
                 .seconds = json.at("seconds").get<double>(),
                 .data_wait_s = json.at("data_wait_s").get<double>()};
  for (const auto& [name, mean] : json.at("terms").items()) sums.terms[name] = mean_of(mean);
  return sums;
}

Json to_json(const Schedule::State& state) {
  return {{"best", state.best},
          {"has_best", state.has_best},
          {"bad_validations", state.bad_validations},
          {"reductions", state.reductions}};
}
Schedule::State schedule_of(const Json& json) {
  return {json.at("best").get<double>(), json.at("has_best").get<bool>(), json.at("bad_validations").get<int64_t>(),
          json.at("reductions").get<int64_t>()};
}

TrainState parse(const Metadata& metadata) {
  const auto json = [&](const char* key) { return Json::parse(metadata.at(key)); };
  TrainState state;
  state.step = std::stoll(metadata.at("step"));
  if (metadata.count("epoch_open") > 0) state.epoch_open = json("epoch_open").get<bool>();
  state.steps_per_epoch = std::stoll(metadata.at("steps_per_epoch"));
  state.micro_batch = std::stoll(metadata.at("micro_batch"));
  state.compute_threads = std::stoi(metadata.at("compute_threads"));
  state.schedule = schedule_of(json("schedule"));
  if (const auto best = json("best_score"); !best.is_null()) state.best_score = best.get<double>();
  const Json early = json("early_stop");
  state.best_step = early.at("best_step").get<int64_t>();
  state.validations_without_gain = early.at("validations_without_gain").get<int64_t>();
  state.stopped_early = early.at("stopped").get<bool>();
  const Json bad = json("bad_steps");
  state.bad_steps = bad.at("total").get<int64_t>();
  state.bad_in_a_row = bad.at("in_a_row").get<int64_t>();
  state.epoch_sums = epoch_sums_of(json("epoch_sums"));
  const Json unlogged = metadata.count("unlogged_terms") > 0 ? json("unlogged_terms") : Json::object();
  for (const auto& [name, value] : unlogged.items())
    state.unlogged_terms[name] = value.is_number() ? value.get<double>() : std::nan("");
  state.skipped_cases = json("skipped_cases").get<std::vector<std::string>>();
  if (metadata.count("cases") > 0) {
    state.training_cases = json("cases").at("train").get<std::vector<std::string>>();
    state.validation_cases = json("cases").at("validation").get<std::vector<std::string>>();
  }
  state.class_values = json("class_values").get<std::vector<int64_t>>();
  if (metadata.count("input_statistics") > 0)
    state.input_statistics = json("input_statistics").get<std::vector<std::array<double, 2>>>();
  if (metadata.count("kernel_choices") > 0)
    state.kernel_choices = json("kernel_choices").get<std::map<std::string, std::string>>();
  state.machine = json("machine").get<std::map<std::string, std::string>>();
  return state;
}

}  // namespace

void MeanOf::add(double value) {
  if (!std::isfinite(value)) return;
  sum += value;
  ++count;
}

std::optional<double> MeanOf::mean() const {
  return count > 0 ? std::optional(sum / static_cast<double>(count)) : std::nullopt;
}

Metadata to_metadata(const TrainState& state, const Options& options) {
  Metadata metadata;
  metadata["format_version"] = kFormat;
  metadata["config"] = to_yaml(options);
  metadata["step"] = std::to_string(state.step);
  metadata["epoch_open"] = Json(state.epoch_open).dump();
  metadata["steps_per_epoch"] = std::to_string(state.steps_per_epoch);
  metadata["micro_batch"] = std::to_string(state.micro_batch);
  metadata["compute_threads"] = std::to_string(state.compute_threads);
  metadata["schedule"] = to_json(state.schedule).dump();
  metadata["best_score"] = state.best_score ? Json(*state.best_score).dump() : "null";
  metadata["early_stop"] = Json{
      {"best_step", state.best_step},
      {"validations_without_gain", state.validations_without_gain},
      {"stopped",
       state.stopped_early}}.dump();
  metadata["bad_steps"] = Json{{"total", state.bad_steps}, {"in_a_row", state.bad_in_a_row}}.dump();
  metadata["epoch_sums"] = to_json(state.epoch_sums).dump();
  metadata["unlogged_terms"] = Json(state.unlogged_terms).dump();  // null: not finite
  metadata["skipped_cases"] = Json(state.skipped_cases).dump();
  metadata["cases"] = Json{{"train", state.training_cases}, {"validation", state.validation_cases}}.dump();
  metadata["class_values"] = Json(state.class_values).dump();
  metadata["input_statistics"] = Json(state.input_statistics).dump();
  metadata["kernel_choices"] = Json(state.kernel_choices).dump();
  metadata["machine"] = Json(state.machine).dump();
  return metadata;
}

TrainState state_of(const Metadata& metadata, const std::string& path) {
  const auto version = metadata.find("format_version");
  VOX_CHECK(version != metadata.end() && version->second == kFormat, path, " has the checkpoint format ",
            version == metadata.end() ? std::string("of no version") : version->second, "; this program reads format ",
            kFormat, ". Use the version of Voxloom that wrote it.");
  try {
    return parse(metadata);
  } catch (const std::exception& error) {
    throw with_context(concat(path, ": its metadata cannot be read"), error);
  }
}

void check_text(const Options& options) {
  for (const OptionDifference& set : differences(Options{}, options)) {
    try {
      static_cast<void>(Json(set.after).dump());
    } catch (const Json::type_error&) {
      throw Error(concat(set.key, " is \"", printable(set.after),
                         "\", which is not UTF-8, and a checkpoint holds such text alone; rename what it names, or "
                         "name a link to it"));
    }
  }
}

Options options_of(const Metadata& metadata, const std::string& path) {
  const auto text = metadata.find("config");
  VOX_CHECK(text != metadata.end(), path, " holds no configuration: it is no checkpoint of a run");
  return parse_config(text->second, "/").options;
}

}  // namespace vox
