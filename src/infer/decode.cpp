#include "infer/decode.h"

#include <algorithm>
#include <cmath>
#include <numeric>

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

int64_t classes_of(const std::vector<int64_t>& label_channels) {  // one channel tells two
  return std::max<int64_t>(2, static_cast<int64_t>(label_channels.size()));
}

void fill_labels(uint8_t* out, const float* logits, const std::vector<int64_t>& from, int64_t voxels,
                 const DecodeOptions& options) {
  const std::vector<uint8_t> label = bytes_of_classes(options.class_values, classes_of(from));
  if (from.size() == 1) {
    const float* const foreground = logits + from.front() * voxels;
    const double cut = std::log(options.threshold / (1 - options.threshold));  // the logit of the threshold
    for (int64_t i = 0; i < voxels; ++i) out[i] = label[static_cast<double>(foreground[i]) > cut ? 1 : 0];
    return;
  }
  for (int64_t i = 0; i < voxels; ++i) {
    size_t best = 0;
    for (size_t one = 1; one < from.size(); ++one)
      if (logits[from[one] * voxels + i] > logits[from[best] * voxels + i]) best = one;
    out[i] = label[best];
  }
}

void fill_chances(float* out, const float* logits, int64_t count) {  // each for itself
  for (int64_t i = 0; i < count; ++i) out[i] = 1 / (1 + std::exp(-logits[i]));
}

void share_out(float* out, const float* logits, const std::vector<int64_t>& classes, int64_t voxels) {
  for (int64_t i = 0; i < voxels; ++i) {
    float largest = logits[classes.front() * voxels + i], sum = 0;
    for (const int64_t channel : classes) largest = std::max(largest, logits[channel * voxels + i]);
    for (const int64_t channel : classes)
      sum += out[channel * voxels + i] = std::exp(logits[channel * voxels + i] - largest);
    for (const int64_t channel : classes) out[channel * voxels + i] /= sum;
  }
}

void fill_values(float* out, const float* logits, int64_t count) {  // 0 where every window was skipped
  for (int64_t i = 0; i < count; ++i) out[i] = std::isinf(logits[i]) && logits[i] < 0 ? 0 : logits[i];
}

bool contains(const std::vector<int64_t>& channels, int64_t channel) {
  return std::find(channels.begin(), channels.end(), channel) != channels.end();
}

void fill_probabilities(float* out, const float* logits, int64_t channels, int64_t voxels,
                        const DecodeOptions& options) {
  const std::vector<int64_t> of_label = options.label_channels_of(channels);
  for (int64_t channel = 0; channel < channels; ++channel) {
    const int64_t first = channel * voxels;
    if (contains(options.value_channels, channel))
      fill_values(out + first, logits + first, voxels);
    else if (of_label.size() < 2 || !contains(of_label, channel))
      fill_chances(out + first, logits + first, voxels);
  }
  if (of_label.size() > 1) share_out(out, logits, of_label, voxels);
}

}  // namespace

std::vector<int64_t> DecodeOptions::label_channels_of(int64_t channels) const {
  if (label_channels) return *label_channels;
  std::vector<int64_t> all(static_cast<size_t>(channels));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

VolumeInfo decoded_info(const Extent3& extent, int64_t channels, const DecodeOptions& options) {
  VOX_CHECK(options.threshold > 0 && options.threshold < 1, "the threshold is ", options.threshold,
            "; it must lie between 0 and 1");
  if (options.labels()) bytes_of_classes(options.class_values, classes_of(options.label_channels_of(channels)));
  VolumeInfo info;
  info.dtype = options.labels() ? DType::kUInt8 : DType::kFloat32;
  info.extent = extent;
  info.channels = options.labels() ? 1 : channels;
  return info;
}

void decode(std::byte* out, const float* logits, int64_t channels, int64_t voxels, const DecodeOptions& options) {
  if (options.labels())
    fill_labels(reinterpret_cast<uint8_t*>(out), logits, options.label_channels_of(channels), voxels, options);
  else if (options.regression)
    fill_values(reinterpret_cast<float*>(out), logits, channels * voxels);
  else
    fill_probabilities(reinterpret_cast<float*>(out), logits, channels, voxels, options);
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
    const int64_t foreground = options.label_channels ? options.label_channels->front() : 0;
    fill_chances(work.probability.data(), logits + foreground * extent.voxels(), extent.voxels());
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
  fill_chances(work.probability.data(), logits, channels * voxels);
  chain.run(work);
  VolumeInfo info;
  info.dtype = DType::kUInt32;
  info.extent = extent;
  Volume objects = allocate_volume(info);
  std::copy(work.objects.begin(), work.objects.end(), objects.data.as<uint32_t>());
  return objects;
}

}  // namespace vox
