// A volume larger than the network sees at once: overlapping windows, their outputs blended with weights that fall off
// towards the window's edge (Isensee et al. 2021), so that no seam shows. Windows are read ahead of the computation and
// finished slices written behind it, each by a thread of its own.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/buffer.h"
#include "base/shape.h"
#include "infer/variants.h"
#include "infer/windows.h"

namespace vox {

class Network;

struct SlidingWindowOptions {
  Extent3 window{64, 64, 64};
  double overlap = 0.5;  // fraction of the window, each axis
  Blend blend = Blend::kGaussian;
  int64_t batch_size = 1;  // windows, or variants of one, at once
  Augment augment = Augment::kNone;
  Mirroring mirroring{};
  Extent3 shift{};  // of every window, back and on
};

// A window that all networks can take: at least `window`, rounded up to what they divide.
Extent3 common_window(const std::vector<Network*>& networks, Extent3 window);

struct WindowSource {
  Extent3 extent;  // of the volume
  int64_t channels = 1;
  // Writes the window that begins at `begin` (any part of it may lie outside the volume) of one channel.
  std::function<void(const Extent3& begin, int64_t channel, float* out)> read{};
  std::function<bool(const Extent3& begin)> wanted{};  // others are skipped unread; empty: all are wanted
  std::optional<float> skip_below{};                   // windows without a voxel that reaches this are skipped
  std::optional<Box3> region{};                        // windows lie over this box alone; none: over the volume
};

struct Slab {  // finished slices; where every window was skipped, the background is certain (infer/slab_blend.h)
  int64_t z_begin = 0, z_end = 0, channels = 0;
  const float* logits = nullptr;  // channel, z, y, x
};
struct SlabRun {
  int64_t first_slice = 0;                        // those before it are not wanted: an earlier run has them
  std::function<void(const Slab&)> write;         // in order, by a thread of its own
  std::function<void(int64_t slices)> written{};  // all before `slices`: what a continued run may start from
  std::function<void(int64_t done, int64_t total)> progress{};  // windows, by the calling thread
};
// The same slices come out, to the bit, wherever the run starts. The window is the rounded one of common_window.
void predict_slabs(const std::vector<Network*>& networks, const WindowSource& source,
                   const SlidingWindowOptions& options, const SlabRun& run);

// The same of a volume [C, Z, Y, X] that lies on the networks' device and is nowhere smaller than the window, without
// shifts; the result [channels, Z, Y, X] stays there.
at::Tensor predict_resident(const std::vector<Network*>& networks, const at::Tensor& volume,
                            const SlidingWindowOptions& options);

// Bytes that predict_slabs holds at most, the network's own aside.
int64_t blending_bytes(const WindowSource& source, const SlidingWindowOptions& options, int64_t output_channels);

struct Logits {
  int64_t channels = 0;
  Extent3 extent;
  Buffer data;  // float32: channel, z, y, x
};
// The whole volume in memory. The window is rounded up to what the network divides.
Logits predict_logits(Network& network, const WindowSource& source, const SlidingWindowOptions& options,
                      const std::function<void(int64_t done, int64_t total)>& done = {});

}  // namespace vox
