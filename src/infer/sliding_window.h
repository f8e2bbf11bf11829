// A volume larger than the network sees at once: overlapping windows, their outputs blended with weights that fall off
// towards the window's edge (Isensee et al. 2021), so that no seam shows.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/shape.h"

namespace vox {

class Network;

enum class Blend { kConstant, kGaussian };
Blend blend_from_name(const std::string& name);

struct SlidingWindowOptions {
  Extent3 window{64, 64, 64};
  double overlap = 0.5;  // fraction of the window, each axis
  Blend blend = Blend::kGaussian;
  int64_t batch_size = 1;  // windows at once
  bool mirrors = false;    // the mean over all eight mirrorings of each window
};

// First voxels, spread evenly so that the last window ends with the volume. Negative where the volume is smaller than
// the window: it then lies in the middle.
std::vector<Extent3> window_begins(const Extent3& volume, const Extent3& window, double overlap);

// One weight a voxel of the window, at most 1: a gaussian of an eighth of the window, never below a thousandth.
std::vector<float> blend_weights(const Extent3& window, Blend blend);

struct WindowSource {
  Extent3 extent;  // of the volume
  int64_t channels = 1;
  // Writes the window that begins at `begin` (any part of it may lie outside the volume) of one channel.
  std::function<void(const Extent3& begin, int64_t channel, float* out)> read;
};

struct Logits {
  int64_t channels = 0;
  Extent3 extent;
  Buffer data;  // float32: channel, z, y, x
};

// The window is rounded up to what the network divides. Runs on the device of the network; `done` hears of each batch.
Logits predict_logits(Network& network, const WindowSource& source, const SlidingWindowOptions& options,
                      const std::function<void(int64_t done, int64_t total)>& done = {});

}  // namespace vox
