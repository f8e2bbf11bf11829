#include "cli/profile_on.h"

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/text.h"
#include "cli/json_text.h"
#include "measure/gpu_predict.h"

namespace vox::cli {
namespace {

using nlohmann::json;

json prediction_json(const GpuPrediction& one) {
  json layers = json::array();
  for (const LayerTime& layer : one.step.layers)
    layers.push_back({{"name", layer.name}, {"ms", layer.ms}, {"kernel", layer.own_kernel ? "own" : "cudnn"}});
  return {{"modelled", true},
          {"gpu", one.gpu.name},
          {"title", one.gpu.title},
          {"step_ms", one.step.step_ms()},
          {"samples_per_s", one.samples_per_s},
          {"stages",
           {{"forward", one.step.forward_ms},
            {"loss", one.step.loss_ms},
            {"backward", one.step.backward_ms},
            {"optimizer", one.step.optimizer_ms}}},
          {"fits", one.fits},
          {"largest_batch", one.largest_batch},
          {"memory_gb", one.memory_gb},
          {"usable_gb", one.usable_gb},
          {"layers", layers}};
}

json document_of(const RecipePrediction& recipe) {
  const json about{{"modelled", true},      {"batch", recipe.batch},           {"accumulation", recipe.accumulation},
                   {"gflop", recipe.gflop}, {"parameters", recipe.parameters}, {"notes", recipe.notes}};
  json document = about;
  if (recipe.gpus.size() == 1) {
    document.update(prediction_json(recipe.gpus.front()));
  } else {
    document["gpus"] = json::array();
    for (const GpuPrediction& one : recipe.gpus) document["gpus"].push_back(prediction_json(one));
  }
  return document;
}

std::string cell(const std::string& text, size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

std::string slowest_layers(const GpuPrediction& one) {
  std::vector<LayerTime> layers = one.step.layers;
  constexpr size_t kShown = 5;
  std::stable_sort(layers.begin(), layers.end(), [](const auto& a, const auto& b) { return a.ms > b.ms; });
  layers.resize(std::min(layers.size(), kShown));
  std::ostringstream out;
  out << "\nslowest layers with their norms, forward and backward:\n";
  for (const LayerTime& layer : layers)
    out << cell(format_number(layer.ms, 2), 9) << " ms  " << layer.name << " ("
        << (layer.own_kernel ? "our kernel" : "cuDNN") << ")\n";
  return out.str();
}

std::string prediction_text(const RecipePrediction& recipe) {
  std::ostringstream out;
  out << "modelled, not measured: a batch of " << recipe.batch;
  if (recipe.accumulation > 1) out << ", accumulated " << recipe.accumulation << " times";
  out << ", " << format_number(recipe.gflop, recipe.gflop < 10 ? 2 : 0) << " GFLOP a step, data waiting on the GPU\n"
      << "  GPU        step ms  samples/s  forward     loss  backward  optimizer  memory GB  fits  largest batch\n";
  for (const GpuPrediction& one : recipe.gpus)
    out << "  " << one.gpu.name << std::string(9 - std::min<size_t>(9, one.gpu.name.size()), ' ')
        << cell(format_number(one.step.step_ms(), 1), 9) << cell(format_number(one.samples_per_s, 1), 11)
        << cell(format_number(one.step.forward_ms, 1), 9) << cell(format_number(one.step.loss_ms, 1), 9)
        << cell(format_number(one.step.backward_ms, 1), 10) << cell(format_number(one.step.optimizer_ms, 1), 11)
        << cell(format_number(one.memory_gb, 1), 11) << cell(one.fits ? "yes" : "no", 6)
        << cell(std::to_string(one.largest_batch), 15) << '\n';
  if (recipe.gpus.size() == 1) out << slowest_layers(recipe.gpus.front());
  for (const std::string& note : recipe.notes) out << "note: " << note << '\n';
  return out.str();
}

}  // namespace

void print_prediction(const Options& options, const std::string& gpu, bool as_json) {
  const RecipePrediction recipe =
      predict_recipe(options, gpu == "all" ? known_gpus() : std::vector<GpuSpec>{find_gpu(gpu)});
  std::cout << (as_json ? json_text(document_of(recipe)) : prediction_text(recipe));
}

}  // namespace vox::cli
