// voxloom inspect CONFIG --sample N [--picture FILE.png]: what is drawn for one training sample, and how it looks.
#include <algorithm>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "augment/augment.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "cli/inspect.h"
#include "cli/json_text.h"
#include "cli/make_data.h"
#include "config/config.h"
#include "pipeline/pipeline.h"
#include "pipeline/sample_context.h"
#include "report/png.h"
#include "report/slices.h"
#include "volume/dataset.h"

namespace vox::cli {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kMostSlices = 8;

struct Stretch {  // of values to 0 .. 255
  float low, high;
  uint8_t operator()(float value) const {
    const float unit = high > low ? (value - low) / (high - low) : 0.5f;
    return static_cast<uint8_t>(255.0f * std::clamp(unit, 0.0f, 1.0f) + 0.5f);
  }
};

// From the 0.5th to the 99.5th percentile: a few hot voxels must not turn the rest dark.
Stretch stretch_of(const float* values, int64_t count) {
  std::vector<float> sorted(values, values + count);
  const auto at = [&](double share) {
    const auto nth = sorted.begin() + static_cast<int64_t>(share * static_cast<double>(count - 1));
    std::nth_element(sorted.begin(), nth, sorted.end());
    return *nth;
  };
  const float low = at(0.005);
  return {low, at(0.995)};
}

// Labels as the picture colours them; none of a regression target.
std::vector<uint8_t> label_slice(const BatchArray& label, int64_t z, const DataOptions& data) {
  const int64_t pixels = label.shape[3] * label.shape[4], first = z * pixels;
  std::vector<uint8_t> out(static_cast<size_t>(pixels));
  if (label.dtype != DType::kUInt8) return {};
  const auto* values = reinterpret_cast<const uint8_t*>(label.data) + first;
  for (int64_t i = 0; i < pixels; ++i)
    out[static_cast<size_t>(i)] = values[i] == data.ignore_label ? uint8_t{255} : values[i];
  return out;
}

// Slices from top to bottom; beside each the same with its labels.
Image montage(const Batch& batch, const DataOptions& data) {
  const BatchArray& image = batch.arrays.at("image");
  const auto label = batch.arrays.find("label");
  const int64_t depth = image.shape[2], height = image.shape[3], width = image.shape[4], slice = height * width;
  const auto* values = reinterpret_cast<const float*>(image.data);  // channel 0
  const Stretch stretch = stretch_of(values, depth * slice);
  const int64_t count = std::min(depth, kMostSlices);
  Image all{.width = 0, .height = 0, .channels = 3, .pixels = {}};
  for (int64_t i = 0; i < count; ++i) {
    const int64_t z = (2 * i + 1) * depth / (2 * count);
    SliceStrip strip{
        .epoch = 0, .case_id = "", .height = height, .width = width, .input = {}, .label = {}, .prediction = {}};
    for (int64_t k = 0; k < slice; ++k) strip.input.push_back(stretch(values[z * slice + k]));
    if (label != batch.arrays.end()) strip.label = label_slice(label->second, z, data);
    const Image row = side_by_side(strip);
    all.width = row.width;
    all.height += row.height;
    all.pixels.insert(all.pixels.end(), row.pixels.begin(), row.pixels.end());
  }
  return all;
}

ordered_json label_counts(const Batch& batch) {
  const auto label = batch.arrays.find("label");
  if (label == batch.arrays.end() || label->second.dtype != DType::kUInt8) return nullptr;
  std::map<int, int64_t> counts;
  const auto* values = reinterpret_cast<const uint8_t*>(label->second.data);
  for (int64_t i = 0; i < label->second.bytes(); ++i) ++counts[values[i]];
  ordered_json out = ordered_json::object();
  for (const auto& [value, voxels] : counts) out[std::to_string(value)] = voxels;
  return out;
}

ordered_json to_json(const SampleInfo& info, const std::string& id, const Drawn& drawn) {
  ordered_json out;
  out["sample"] = info.sample;
  out["case"] = id;
  out["begin"] = {info.begin.z, info.begin.y, info.begin.x};
  out["parameters"] = ordered_json::array();
  for (const auto& [name, value] : drawn.parameters) out["parameters"].push_back({{"name", name}, {"value", value}});
  return out;
}

void print(const ordered_json& facts) {
  std::cout << "sample " << facts["sample"] << ": case " << facts["case"].get<std::string>() << ", patch from "
            << facts["begin"].dump() << '\n';
  for (const ordered_json& one : facts["parameters"])
    std::cout << "  " << one["name"].get<std::string>() << ": " << one["value"].get<std::string>() << '\n';
  if (facts["parameters"].empty()) std::cout << "  nothing is drawn: the patch is shown as it is\n";
}

}  // namespace

void inspect_sample(const InspectRequest& request) {
  const Config config = load_config(request.name, request.overrides);
  for (const std::string& warning : config.warnings) std::cerr << "voxloom: " << warning << '\n';
  DataOptions data = config.options.data;
  data.patch_type = "float32";
  data.layout = "ncdhw";
  const AugmentationOptions& augmentation = config.options.augmentation;
  const uint64_t seed = static_cast<uint64_t>(config.options.training.seed);
  make_missing_data(config.options);
  ThreadPool pool(available_cpus());
  const auto store = std::make_shared<Store>(make_dataset(data, config.options.training.fold, seed), data, pool);
  Pipeline pipeline(store, data, augmentation,
                    {.seed = seed, .first_sample = request.sample, .batch_size = 1, .batches = 1});
  Batch batch;
  VOX_CHECK(pipeline.next(batch), "sample ", request.sample, " gave no batch");
  const SampleInfo& info = batch.samples.front();
  const Drawn drawn = draw_transforms(
      augmentation, SampleContexts(store, data.patch_size, augmentation).of(info.case_index, info.begin), seed,
      info.sample);
  const std::string& id = store->dataset().cases[static_cast<size_t>(info.case_index)].id;
  if (!request.picture.empty()) write_file(request.picture, encode_png(montage(batch, data)));
  ordered_json facts = to_json(info, id, drawn);
  facts["labels"] = label_counts(batch);
  if (request.as_json)
    std::cout << json_text(facts);
  else
    print(facts);
  if (!request.picture.empty()) std::cerr << "wrote " << request.picture << '\n';
}

}  // namespace vox::cli
