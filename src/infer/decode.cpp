#include "infer/decode.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

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

void fill_labels(uint8_t* out, const float* logits, int64_t channels, int64_t voxels, const DecodeOptions& options) {
  const std::vector<uint8_t> label = bytes_of_classes(options.class_values, std::max<int64_t>(2, channels));
  if (channels == 1) {
    const double cut = std::log(options.threshold / (1 - options.threshold));  // the logit of the threshold
    for (int64_t i = 0; i < voxels; ++i) out[i] = label[static_cast<double>(logits[i]) > cut ? 1 : 0];
    return;
  }
  for (int64_t i = 0; i < voxels; ++i) {
    int64_t best = 0;
    for (int64_t channel = 1; channel < channels; ++channel)
      if (logits[channel * voxels + i] > logits[best * voxels + i]) best = channel;
    out[i] = label[static_cast<size_t>(best)];
  }
}

void fill_probabilities(float* out, const float* logits, int64_t channels, int64_t voxels) {
  for (int64_t i = 0; i < voxels; ++i) {
    if (channels == 1) {
      out[i] = 1 / (1 + std::exp(-logits[i]));
      continue;
    }
    float largest = logits[i], sum = 0;
    for (int64_t channel = 1; channel < channels; ++channel) largest = std::max(largest, logits[channel * voxels + i]);
    for (int64_t channel = 0; channel < channels; ++channel)
      sum += out[channel * voxels + i] = std::exp(logits[channel * voxels + i] - largest);
    for (int64_t channel = 0; channel < channels; ++channel) out[channel * voxels + i] /= sum;
  }
}

void fill_values(float* out, const float* logits, int64_t count) {  // 0 where every window was skipped
  for (int64_t i = 0; i < count; ++i) out[i] = std::isinf(logits[i]) && logits[i] < 0 ? 0 : logits[i];
}

}  // namespace

VolumeInfo decoded_info(const Extent3& extent, int64_t channels, const DecodeOptions& options) {
  VOX_CHECK(options.threshold > 0 && options.threshold < 1, "the threshold is ", options.threshold,
            "; it must lie between 0 and 1");
  if (options.labels()) bytes_of_classes(options.class_values, std::max<int64_t>(2, channels));
  VolumeInfo info;
  info.dtype = options.labels() ? DType::kUInt8 : DType::kFloat32;
  info.extent = extent;
  info.channels = options.labels() ? 1 : channels;
  return info;
}

void decode(std::byte* out, const float* logits, int64_t channels, int64_t voxels, const DecodeOptions& options) {
  if (options.labels())
    fill_labels(reinterpret_cast<uint8_t*>(out), logits, channels, voxels, options);
  else if (options.regression)
    fill_values(reinterpret_cast<float*>(out), logits, channels * voxels);
  else
    fill_probabilities(reinterpret_cast<float*>(out), logits, channels, voxels);
}

Volume decode(const Logits& logits, const DecodeOptions& options) {
  Volume volume = allocate_volume(decoded_info(logits.extent, logits.channels, options));
  decode(volume.data.data(), logits.data.as<float>(), logits.channels, logits.extent.voxels(), options);
  return volume;
}

void process_labels(uint8_t* labels, const float* logits, const Extent3& extent, const DecodeOptions& options,
                    const PostChain& chain) {
  PostVolume work{.extent = extent, .probability = {}, .mask = {}};
  const auto voxels = static_cast<size_t>(extent.voxels());
  if (chain.wants_probabilities()) {
    VOX_ASSERT(logits != nullptr);
    work.probability.resize(voxels);
    fill_probabilities(work.probability.data(), logits, 1, extent.voxels());
  }
  const std::vector<uint8_t> value = bytes_of_classes(options.class_values, 2);
  work.mask.resize(voxels);
  for (size_t i = 0; i < voxels; ++i) work.mask[i] = labels[i] == value[1];
  chain.run(work);
  for (size_t i = 0; i < voxels; ++i) labels[i] = value[work.mask[i]];
}

Volume objects_of(const float* logits, int64_t channels, const Extent3& extent, const PostChain& chain) {
  PostVolume work{.extent = extent, .channels = channels};
  const int64_t voxels = extent.voxels();
  work.probability.resize(static_cast<size_t>(channels * voxels));
  fill_probabilities(work.probability.data(), logits, 1, channels * voxels);
  chain.run(work);
  VolumeInfo info;
  info.dtype = DType::kUInt32;
  info.extent = extent;
  Volume objects = allocate_volume(info);
  std::copy(work.objects.begin(), work.objects.end(), objects.data.as<uint32_t>());
  return objects;
}

}  // namespace vox
