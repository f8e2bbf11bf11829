// Test-time augmentation: the same window mirrored and turned, the outputs brought back and averaged. As nnU-Net does
// it, the raw outputs (logits) are averaged, over variants and over the networks of an ensemble alike.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/shape.h"

namespace at {
class Tensor;
}

namespace vox {

class Network;
struct AugmentationOptions;

enum class Augment { kNone, kMirror, kMirrorRotate };
Augment augment_from_name(const std::string& name);

struct Variant {
  std::array<int, 3> axes{0, 1, 2};  // axis i of the variant is axis axes[i] of the window
  int mirrored = 0;                  // then: bit i mirrors axis i
  std::vector<int64_t> swapped{};    // pairs of channels that change places: left and right organs
  bool operator==(const Variant&) const = default;
};

// What the network has seen mirrored. A mirror along any other axis would show it what it never learned.
struct Mirroring {
  std::vector<int64_t> axes{0, 1, 2};
  std::vector<int64_t> swap_channels{};  // pairs, swapped by a mirror along swap_axis
  int64_t swap_axis = 1;
};

// That of training; a network trained without any mirrors is mirrored along every axis when asked for. Of an ensemble
// the axes that all of its members learned; Error where these swapped other channels.
Mirroring mirroring_of(const std::vector<const AugmentationOptions*>& trained);

// The identity first. kMirror: every set of the axes. kMirrorRotate: all that these mirrorings and the quarter turns in
// planes where the window is square make together (16 where one plane is square, 48 of a cube, with all axes). A mirror
// along swap_axis of the window swaps the paired channels in both.
std::vector<Variant> variants_of(const Extent3& window, Augment augment, const Mirroring& mirroring = {});

// Mean output, float32 [N, C, Z, Y, X], of the image's variants by all networks; at most `batch_size` samples pass
// through a network at once, or those of the image where they are more.
at::Tensor forward_variants(const std::vector<Network*>& networks, const at::Tensor& image,
                            const std::vector<Variant>& variants, int64_t batch_size);

}  // namespace vox
