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

std::vector<uint8_t> labels_of(const std::vector<int64_t>& label_channels, const DecodeOptions& options) {
  const bool implied = options.implies_background(std::ssize(label_channels));
  return bytes_of_classes(options.class_values, static_cast<int64_t>(label_channels.size()) + (implied ? 1 : 0));
}

bool contains(const std::vector<int64_t>& channels, int64_t channel) {
  return std::find(channels.begin(), channels.end(), channel) != channels.end();
}

// What the network gives where the chance is the threshold: the threshold itself where a loss compared it with 0 and 1.
double cut_of(int64_t channel, const DecodeOptions& options) {
  if (contains(options.tanh_channels, channel)) return std::atanh(options.threshold);
  if (contains(options.value_channels, channel)) return options.threshold;
  return std::log(options.threshold / (1 - options.threshold));
}

void fill_labels(uint8_t* out, const float* logits, const std::vector<int64_t>& from, int64_t voxels,
                 const DecodeOptions& options) {
  const std::vector<uint8_t> label = labels_of(from, options);
  const bool implied = options.implies_background(std::ssize(from));
  const double cut = cut_of(from.front(), options);
  for (int64_t i = 0; i < voxels; ++i) {
    size_t best = 0;
    for (size_t one = 1; one < from.size(); ++one)
      if (logits[from[one] * voxels + i] > logits[from[best] * voxels + i]) best = one;
    const bool likely = !implied || static_cast<double>(logits[from[best] * voxels + i]) > cut;
    out[i] = label[likely ? best + (implied ? 1 : 0) : 0];
  }
}

void fill_chances(float* out, const float* logits, int64_t count) {  // each for itself
  for (int64_t i = 0; i < count; ++i) out[i] = 1 / (1 + std::exp(-logits[i]));
}

void share_out(float* out, const float* logits, const std::vector<int64_t>& classes, int64_t voxels) {
  for (int64_t i = 0; i < voxels; ++i) {
    float largest = logits[classes.front() * voxels + i], sum = 0;
    for (const int64_t channel : classes) largest = std::max(largest, logits[channel * voxels + i]);
    if (std::isinf(largest) && largest < 0) {  // no window lay here
      for (const int64_t channel : classes) out[channel * voxels + i] = channel == classes.front() ? 1 : 0;
      continue;
    }
    for (const int64_t channel : classes)
      sum += out[channel * voxels + i] = std::exp(logits[channel * voxels + i] - largest);
    for (const int64_t channel : classes) out[channel * voxels + i] /= sum;
  }
}

void fill_values(float* out, const float* logits, int64_t voxels, bool tanh) {  // 0 where every window was skipped
  for (int64_t i = 0; i < voxels; ++i) out[i] = std::isinf(logits[i]) && logits[i] < 0 ? 0 : logits[i];
  for (int64_t i = 0; tanh && i < voxels; ++i) out[i] = std::tanh(out[i]);
}

void fill_numbers(float* out, const float* logits, int64_t channels, int64_t voxels, const DecodeOptions& options) {
  const std::vector<int64_t> of_label = options.label_channels_of(channels);
  const bool shared = options.softmax && !options.regression && of_label.size() > 1;
  for (int64_t channel = 0; channel < channels; ++channel) {
    const int64_t first = channel * voxels;
    if (options.regression || contains(options.value_channels, channel))
      fill_values(out + first, logits + first, voxels, contains(options.tanh_channels, channel));
    else if (!shared || !contains(of_label, channel))
      fill_chances(out + first, logits + first, voxels);
  }
  if (shared) share_out(out, logits, of_label, voxels);
}

}  // namespace

std::vector<int64_t> DecodeOptions::label_channels_of(int64_t channels) const {
  if (label_channels) return *label_channels;
  std::vector<int64_t> all(static_cast<size_t>(channels));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

VolumeInfo decoded_info(const Extent3& extent, int64_t channels, const DecodeOptions& options) {
  VOX_CHECK(options.threshold >= 0 && options.threshold <= 1, "the threshold is ", options.threshold,
            "; expected 0 to 1");
  if (options.labels()) labels_of(options.label_channels_of(channels), options);
  VolumeInfo info;
  info.dtype = options.labels() ? DType::kUInt8 : DType::kFloat32;
  info.extent = extent;
  info.channels = options.labels() ? 1 : channels;
  return info;
}

void decode(std::byte* out, const float* logits, int64_t channels, int64_t voxels, const DecodeOptions& options) {
  if (options.labels())
    fill_labels(reinterpret_cast<uint8_t*>(out), logits, options.label_channels_of(channels), voxels, options);
  else
    fill_numbers(reinterpret_cast<float*>(out), logits, channels, voxels, options);
}

Volume decode(const Logits& logits, const DecodeOptions& options) {
  Volume volume = allocate_volume(decoded_info(logits.extent, logits.channels, options));
  decode(volume.data.data(), logits.data.as<float>(), logits.channels, logits.extent.voxels(), options);
  return volume;
}

namespace {

// Of one channel: 0 where no window lay, and what values of 0 and 1 were learnt as.
void fill_chances_of(float* out, const Logits& logits, int64_t channel, const DecodeOptions& options) {
  const int64_t voxels = logits.extent.voxels();
  const float* const from = logits.data.as<float>() + channel * voxels;
  if (!contains(options.value_channels, channel)) return fill_chances(out, from, voxels);
  fill_values(out, from, voxels, contains(options.tanh_channels, channel));
  for (int64_t i = 0; i < voxels; ++i) out[i] = std::clamp(out[i], 0.0F, 1.0F);
}

// Of what one or two label channels tell, the logit of two being their difference; 0 where no window lay.
std::vector<float> foreground_alone(const Logits& logits, const DecodeOptions& options) {
  const int64_t voxels = logits.extent.voxels();
  const std::vector<int64_t> from = options.label_channels_of(logits.channels);
  std::vector<float> chance(static_cast<size_t>(voxels));
  if (from.size() == 1) {
    fill_chances_of(chance.data(), logits, from.front(), options);
    return chance;
  }
  const float* const likely = logits.data.as<float>() + from.back() * voxels;
  const float* const background = logits.data.as<float>() + from.front() * voxels;
  for (int64_t i = 0; i < voxels; ++i) {
    const bool nowhere = std::isinf(likely[i]) && likely[i] < 0;
    chance[static_cast<size_t>(i)] = nowhere ? 0 : 1 / (1 + std::exp(background[i] - likely[i]));
  }
  return chance;
}

}  // namespace

void process_labels(uint8_t* labels, const Logits* logits, const Extent3& extent, const DecodeOptions& options,
                    const PostChain& chain) {
  PostVolume work{.extent = extent, .probability = {}, .mask = {}};
  const auto voxels = static_cast<size_t>(extent.voxels());
  if (chain.wants_probabilities()) {
    VOX_ASSERT(logits != nullptr);
    work.probability = foreground_alone(*logits, options);
  }
  const std::vector<uint8_t> value = bytes_of_classes(options.class_values, 2);
  work.mask.resize(voxels);
  for (size_t i = 0; i < voxels; ++i) work.mask[i] = labels[i] == value[1];
  chain.run(work);
  for (size_t i = 0; i < voxels; ++i) labels[i] = value[work.mask[i]];
}

namespace {

// The probability that a voxel is no background.
std::vector<float> foreground_of(const Logits& logits, const DecodeOptions& options) {
  const int64_t voxels = logits.extent.voxels();
  const std::vector<int64_t> from = options.label_channels_of(logits.channels);
  if (options.tells_foreground(std::ssize(from))) return foreground_alone(logits, options);
  std::vector<float> all(static_cast<size_t>(logits.channels * voxels));
  fill_numbers(all.data(), logits.data.as<float>(), logits.channels, voxels, options);
  std::vector<float> foreground(static_cast<size_t>(voxels));
  for (int64_t i = 0; i < voxels; ++i) {
    const auto chance = [&](int64_t channel) { return all[static_cast<size_t>(channel * voxels + i)]; };
    float& most = foreground[static_cast<size_t>(i)];
    if (options.implies_background(std::ssize(from)))
      for (const int64_t channel : from) most = std::max(most, chance(channel));
    else
      most = 1 - chance(from.front());
  }
  return foreground;
}

bool knows_foreground(const DecodeOptions& options) {
  return options.label_channels && !options.label_channels->empty();
}

std::vector<int64_t> chosen_channels(int64_t channels, const DecodeOptions& options, const PostChain& chain) {
  if (!chain.wants_affinities() && knows_foreground(options)) return options.boundary_channels;
  if (chain.wants_affinities() && !options.affinity_channels.empty()) return options.affinity_channels;
  return DecodeOptions{}.label_channels_of(channels);
}

std::vector<float> object_probabilities(const Logits& logits, const DecodeOptions& options, const PostChain& chain) {
  const int64_t voxels = logits.extent.voxels();
  std::vector<float> found;
  if (!chain.wants_affinities() && knows_foreground(options)) found = foreground_of(logits, options);
  for (const int64_t channel : chosen_channels(logits.channels, options, chain)) {
    found.resize(found.size() + static_cast<size_t>(voxels));
    fill_chances_of(found.data() + found.size() - voxels, logits, channel, options);
  }
  return found;
}

constexpr float kUnlikely = -100;  // a logit whose probability is e^-100

// 0 where no window lay; empty: none did not.
std::vector<uint8_t> covered_by_windows(const Logits& logits, const std::vector<int64_t>& channels) {
  const int64_t voxels = logits.extent.voxels();
  std::vector<uint8_t> covered(static_cast<size_t>(voxels));
  for (const int64_t channel : channels)
    for (int64_t i = 0; i < voxels; ++i)
      if (logits.data.as<float>()[channel * voxels + i] > kUnlikely) covered[static_cast<size_t>(i)] = 1;
  return std::find(covered.begin(), covered.end(), 0) == covered.end() ? std::vector<uint8_t>{} : covered;
}

}  // namespace

int64_t object_channels(int64_t channels, const DecodeOptions& options, const PostChain& chain) {
  VOX_CHECK(
      chain.wants_affinities() || !options.label_channels || knows_foreground(options),
      "inference.postprocess: watershed floods the foreground, and no loss term of this network was compared with the "
      "label; add --probabilities, or mutex_watershed where it predicts affinities");
  const int64_t foreground = !chain.wants_affinities() && knows_foreground(options) ? 1 : 0;
  return foreground + std::ssize(chosen_channels(channels, options, chain));
}

void require_fitting(const PostChain& chain, const DecodeOptions& options, int64_t channels, const Extent3& extent) {
  if (chain.empty()) return;
  const int64_t of_label = std::ssize(options.label_channels_of(channels));
  // Where nobody knows what channels are, objects are made of them as they come.
  const bool one_class =
      of_label == 1 || (options.tells_foreground(of_label) && (options.label_channels || !chain.makes_objects()));
  VOX_CHECK((one_class || chain.wants_channels()) && options.labels(),
            "inference.postprocess works on the labels of one class, or makes objects from several channels as its "
            "first step; leave it out for several classes, for regression, and with --probabilities");
  VOX_CHECK(!chain.makes_objects() || chain.wants_probabilities(),
            "inference.postprocess: begin with threshold, hysteresis, watershed or mutex_watershed");
  chain.check(object_channels(channels, options, chain), extent);
}

Volume objects_of(const Logits& logits, const DecodeOptions& options, const PostChain& chain) {
  PostVolume work{.extent = logits.extent, .probability = object_probabilities(logits, options, chain)};
  work.channels = object_channels(logits.channels, options, chain);
  if (chain.wants_affinities())
    work.covered = covered_by_windows(logits, chosen_channels(logits.channels, options, chain));
  chain.run(work);
  VolumeInfo info;
  info.dtype = DType::kUInt32;
  info.extent = logits.extent;
  Volume objects = allocate_volume(info);
  std::copy(work.objects.begin(), work.objects.end(), objects.data.as<uint32_t>());
  return objects;
}

void make_finite(float* out, const float* logits, int64_t channels, int64_t voxels, const DecodeOptions& options) {
  const std::vector<int64_t> of_label = options.label_channels_of(channels);
  const bool shared = options.softmax && of_label.size() > 1;
  for (int64_t channel = 0; channel < channels; ++channel) {
    const float* const in = logits + channel * voxels;
    if (options.regression || contains(options.value_channels, channel)) {
      fill_values(out + channel * voxels, in, voxels, /*tanh=*/false);
      continue;
    }
    const bool background = shared && channel == of_label.front();
    for (int64_t i = 0; i < voxels; ++i)
      out[channel * voxels + i] = background && std::isinf(in[i]) ? 0 : std::max(in[i], kUnlikely);
  }
}

}  // namespace vox
