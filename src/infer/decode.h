// From the network's raw output to what is written: labels, probabilities, or values as they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/volume.h"
#include "infer/sliding_window.h"
#include "post/post.h"

namespace vox {

enum class Output { kLabels, kProbabilities };

struct DecodeOptions {
  Output output = Output::kLabels;
  bool regression = false;            // values as they are
  double threshold = 0.5;             // of the foreground, for one channel
  std::vector<int64_t> class_values;  // label value of each class; empty: 0, 1, 2, ...
  // What labels are made of: the foreground (one channel), or classes of which a voxel has one (several). Every other
  // channel is a probability of its own, as of a boundary or an affinity. Absent: all channels.
  std::optional<std::vector<int64_t>> label_channels{};
  bool softmax = true;  // over these where they are several; else each is a probability of its own too
  // Of several label channels the first is the background's; else a voxel is background where none of them is likely,
  // and class_values has the background's before theirs.
  bool background_channel = true;
  std::vector<int64_t> value_channels{};  // distances, flows: values as they are, beside probabilities
  std::vector<int64_t> tanh_channels{};   // values that are the hyperbolic tangent of the output
  // For chains that make objects. Where label_channels are absent, channels are taken as they come.
  std::vector<int64_t> boundary_channels{}, affinity_channels{};

  bool operator==(const DecodeOptions&) const = default;
  bool labels() const { return output == Output::kLabels && !regression; }
  std::vector<int64_t> label_channels_of(int64_t channels) const;
  // A voxel is background where none of so many label channels is likely: no channel says so.
  bool implies_background(int64_t of_label) const { return of_label < 2 || !background_channel; }
  // One label channel, or the softmax of the background's and another: they tell a foreground.
  bool tells_foreground(int64_t of_label) const {
    return of_label == 1 || (of_label == 2 && softmax && background_channel);
  }
};

// Logits are -infinity in all channels where no window lay: the first class, a probability or a value of 0, no object.

// Type and channels of what decode gives for a network of `channels`; Error where the threshold or a label cannot be.
VolumeInfo decoded_info(const Extent3& extent, int64_t channels, const DecodeOptions& options);

// Of `voxels` voxels, channel first: labels (uint8: background and foreground for one label channel, the strongest one
// of several) or float32, one channel per channel of the network.
void decode(std::byte* out, const float* logits, int64_t channels, int64_t voxels, const DecodeOptions& options);
Volume decode(const Logits& logits, const DecodeOptions& options);

// Error where such a prediction is nothing for inference.postprocess, known before there is one.
void require_fitting(const PostChain& chain, const DecodeOptions& options, int64_t channels, const Extent3& extent);
// inference.postprocess on a whole prediction of one class. `logits` is null where the chain needs labels alone.
void process_labels(uint8_t* labels, const Logits* logits, const Extent3& extent, const DecodeOptions& options,
                    const PostChain& chain);
// The same for a chain that makes objects: their numbers as uint32.
Volume objects_of(const Logits& logits, const DecodeOptions& options, const PostChain& chain);
// Channels that it looks at: the affinities, or the foreground and, where there is one, the boundary.
int64_t object_channels(int64_t channels, const DecodeOptions& options, const PostChain& chain);

// Logits that can be interpolated: finite, and as likely as the others say where no window lay.
void make_finite(float* out, const float* logits, int64_t channels, int64_t voxels, const DecodeOptions& options);

}  // namespace vox
