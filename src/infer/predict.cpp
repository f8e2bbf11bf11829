#include "infer/predict.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "io/format.h"
#include "io/orientation.h"
#include "kernels/gather.h"
#include "nets/network.h"
#include "post/post.h"

namespace vox {
namespace {

std::vector<uint8_t> bytes_of_classes(const std::vector<int64_t>& class_values, int64_t classes) {
  std::vector<uint8_t> bytes;
  for (int64_t i = 0; i < classes; ++i) {
    const bool named = i < static_cast<int64_t>(class_values.size());
    const int64_t value = named ? class_values[static_cast<size_t>(i)] : i;
    VOX_CHECK(value >= 0 && value <= 255, "class ", i, " has the label ", value, "; labels are written as uint8");
    bytes.push_back(static_cast<uint8_t>(value));
  }
  return bytes;
}

void fill_labels(uint8_t* out, const Logits& logits, const DecodeOptions& options) {
  const float* values = logits.data.as<float>();
  const int64_t voxels = logits.extent.voxels();
  const std::vector<uint8_t> label = bytes_of_classes(options.class_values, std::max<int64_t>(2, logits.channels));
  if (logits.channels == 1) {
    const double cut = std::log(options.threshold / (1 - options.threshold));  // the logit of the threshold
    for (int64_t i = 0; i < voxels; ++i) out[i] = label[static_cast<double>(values[i]) > cut ? 1 : 0];
    return;
  }
  for (int64_t i = 0; i < voxels; ++i) {
    int64_t best = 0;
    for (int64_t channel = 1; channel < logits.channels; ++channel)
      if (values[channel * voxels + i] > values[best * voxels + i]) best = channel;
    out[i] = label[static_cast<size_t>(best)];
  }
}

void fill_probabilities(float* out, const Logits& logits) {
  const float* values = logits.data.as<float>();
  const int64_t voxels = logits.extent.voxels(), channels = logits.channels;
  for (int64_t i = 0; i < voxels; ++i) {
    if (channels == 1) {
      out[i] = 1 / (1 + std::exp(-values[i]));
      continue;
    }
    float largest = values[i], sum = 0;
    for (int64_t channel = 1; channel < channels; ++channel) largest = std::max(largest, values[channel * voxels + i]);
    for (int64_t channel = 0; channel < channels; ++channel)
      sum += out[channel * voxels + i] = std::exp(values[channel * voxels + i] - largest);
    for (int64_t channel = 0; channel < channels; ++channel) out[channel * voxels + i] /= sum;
  }
}

// Where preprocessing changed the grid, the result goes back to the grid of the file by the nearest voxel.
Volume on_grid_of(const VolumeInfo& file, Volume&& volume) {
  volume.info.spacing = file.spacing;
  volume.info.affine = file.affine;
  if (volume.info.extent == file.extent) return std::move(volume);
  VolumeInfo info = volume.info;
  info.extent = file.extent;
  Volume result = allocate_volume(info);
  const int64_t item = size_of(info.dtype);
  const auto source = [&](int64_t at, int axis) {
    const double scale = static_cast<double>(volume.info.extent[axis]) / static_cast<double>(info.extent[axis]);
    const int64_t nearest_index = static_cast<int64_t>(std::floor((static_cast<double>(at) + 0.5) * scale));
    return std::clamp<int64_t>(nearest_index, 0, volume.info.extent[axis] - 1);
  };
  std::byte* out = result.data.data();
  for (int64_t channel = 0; channel < info.channels; ++channel)
    for (int64_t z = 0; z < info.extent.z; ++z)
      for (int64_t y = 0; y < info.extent.y; ++y)
        for (int64_t x = 0; x < info.extent.x; ++x, out += item) {
          const int64_t row = (channel * volume.info.extent.z + source(z, 0)) * volume.info.extent.y + source(y, 1);
          std::copy_n(volume.data.data() + (row * volume.info.extent.x + source(x, 2)) * item, item, out);
        }
  return result;
}

// As the file lies on disk: back from the axes that training saw.
Volume as_in_file(const VolumeInfo& file, Volume&& volume, const std::string& orientation) {
  if (orientation == "keep" || !file.affine) return on_grid_of(file, std::move(volume));
  const Reorientation turn = to_ras(*file.affine);
  return apply(on_grid_of(apply(file, turn), std::move(volume)), inverse(turn));
}

std::string stem_of(const std::string& name) {
  std::string file = std::filesystem::path(name).filename().string();
  if (file.empty()) file = std::filesystem::path(name).parent_path().filename().string();
  for (const FormatEntry& format : all_formats())
    for (const std::string& suffix : format.suffixes)
      if (ends_with(file, suffix)) return file.substr(0, file.size() - suffix.size());
  return file;
}

}  // namespace

WindowSource case_source(const std::shared_ptr<Store>& store, int64_t case_index, const Extent3& window) {
  WindowSource source{.extent = store->facts(case_index).extent, .channels = store->image_channels(), .read = {}};
  source.read = [store, case_index, window, extent = source.extent](const Extent3& begin, int64_t channel, float* out) {
    GatherMap map;
    map.origin = begin;
    const GatherOptions options{.interpolation = Interpolation::kNearest, .padding = Padding::kEdge};
    const Box3 box = intersect(source_box(map, window, options.interpolation), whole(extent));
    const Block block = store->fetch(case_index, Role::kImage, channel, box);
    gather_cpu({.data = out, .dtype = DType::kFloat32, .extent = window}, block.view, map, options);
  };
  return source;
}

SlidingWindowOptions window_options(const Options& options) {
  const InferenceOptions& inference = options.inference;
  return {.window = inference.window.voxels() > 0 ? inference.window : options.data.patch_size,
          .overlap = inference.overlap,
          .blend = blend_from_name(inference.blend),
          .batch_size = std::max<int64_t>(1, inference.batch_size),
          .mirrors = inference.tta};
}

Volume decode(const Logits& logits, const DecodeOptions& options) {
  const bool labels = options.output == Output::kLabels && !options.regression;
  VOX_CHECK(options.threshold > 0 && options.threshold < 1, "the threshold is ", options.threshold,
            "; it must lie between 0 and 1");
  VolumeInfo info;
  info.dtype = labels ? DType::kUInt8 : DType::kFloat32;
  info.extent = logits.extent;
  info.channels = labels ? 1 : logits.channels;
  Volume volume = allocate_volume(info);
  if (labels)
    fill_labels(volume.data.as<uint8_t>(), logits, options);
  else if (options.regression)
    std::copy_n(logits.data.as<float>(), info.voxels(), volume.data.as<float>());
  else
    fill_probabilities(volume.data.as<float>(), logits);
  return volume;
}

namespace {

// The chain works on the foreground of one class: from its probabilities where it cuts them itself, else from labels.
Volume decode_and_process(const Logits& logits, const DecodeOptions& options, const PostChain& chain) {
  if (chain.empty()) return decode(logits, options);
  VOX_CHECK(logits.channels == 1 && !options.regression && options.output == Output::kLabels,
            "inference.postprocess works on the labels of one class; leave it out for several classes, for regression, "
            "and with --probabilities");
  Volume labels = decode(logits, options);
  PostVolume work{.extent = logits.extent, .probability = {}, .mask = {}};
  const auto voxels = static_cast<size_t>(logits.extent.voxels());
  if (chain.wants_probabilities()) {
    work.probability.resize(voxels);
    fill_probabilities(work.probability.data(), logits);
  }
  const std::vector<uint8_t> value = bytes_of_classes(options.class_values, 2);
  uint8_t* const label = labels.data.as<uint8_t>();
  work.mask.resize(voxels);
  for (size_t i = 0; i < voxels; ++i) work.mask[i] = label[i] == value[1];
  chain.run(work);
  for (size_t i = 0; i < voxels; ++i) label[i] = value[work.mask[i]];
  return labels;
}

}  // namespace

void predict_cases(Network& network, const std::shared_ptr<Store>& store, const std::vector<int64_t>& cases,
                   const PredictOptions& options, const PredictProgress& progress) {
  const PostChain chain(options.postprocess);
  SlidingWindowOptions window = options.window;
  window.window = network.round_up(window.window);
  for (const int64_t index : cases) {
    const Case& one = store->dataset().cases[static_cast<size_t>(index)];
    const auto windows_done = [&](int64_t done, int64_t total) {
      if (progress.window) progress.window(one.id, done, total);
    };
    const Logits logits = predict_logits(network, case_source(store, index, window.window), window, windows_done);
    const VolumeInfo file = open_volume(one.images.front())->info();
    const Volume volume = as_in_file(file, decode_and_process(logits, options.decode, chain), options.orientation);
    const std::filesystem::path path = options.folder / (one.id + ".tif");
    write_volume(path.string(), volume, {.codec = "lzw"});
    if (progress.written) progress.written(one.id, path);
  }
}

Dataset dataset_of_inputs(const std::vector<std::string>& inputs) {
  Dataset dataset;
  for (const std::string& input : inputs) {
    Case one;
    one.images = std::filesystem::exists(input) ? std::vector{input} : split(input, ',');
    one.id = one.group = stem_of(one.images.front());
    for (const Case& other : dataset.cases)
      VOX_CHECK(other.id != one.id, "two inputs are called ", one.id, ": ", other.images.front(), " and ",
                one.images.front(), "; predict them into two folders");
    dataset.test.push_back(static_cast<int64_t>(dataset.cases.size()));
    dataset.cases.push_back(std::move(one));
  }
  return dataset;
}

}  // namespace vox
