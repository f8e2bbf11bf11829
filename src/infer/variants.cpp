#include "infer/variants.h"

#include <torch/torch.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "config/options.h"
#include "nets/network.h"

namespace vox {
namespace {

std::vector<int64_t> mirrored_axes(const Variant& variant) {
  std::vector<int64_t> axes;
  for (int axis = 0; axis < 3; ++axis)
    if (variant.mirrored >> axis & 1) axes.push_back(2 + axis);
  return axes;
}

at::Tensor with_swapped_channels(const Variant& variant, const at::Tensor& image) {
  if (variant.swapped.empty()) return image;
  std::vector<int64_t> source(static_cast<size_t>(image.size(1)));
  std::iota(source.begin(), source.end(), 0);
  for (size_t i = 0; i + 1 < variant.swapped.size(); i += 2)
    std::swap(source.at(static_cast<size_t>(variant.swapped[i])),
              source.at(static_cast<size_t>(variant.swapped[i + 1])));
  return image.index_select(1, at::tensor(source).to(image.device()));
}

at::Tensor apply(const Variant& variant, const at::Tensor& image) {
  const std::array<int, 3>& axes = variant.axes;
  const at::Tensor turned =
      with_swapped_channels(variant, image).permute({0, 1, 2 + axes[0], 2 + axes[1], 2 + axes[2]});
  return variant.mirrored == 0 ? turned : turned.flip(mirrored_axes(variant));
}

at::Tensor undo(const Variant& variant, const at::Tensor& output) {
  std::vector<int64_t> back{0, 1, 2, 3, 4};
  for (size_t axis = 0; axis < 3; ++axis)
    back[static_cast<size_t>(2 + variant.axes[axis])] = 2 + static_cast<int>(axis);
  const at::Tensor mirrored = variant.mirrored == 0 ? output : output.flip(mirrored_axes(variant));
  return mirrored.permute(back);
}

void add_to(at::Tensor& sum, const at::Tensor& part) {
  if (sum.defined())
    sum += part;
  else
    sum = part.clone(at::MemoryFormat::Contiguous);
}

bool mirrors(const Variant& variant, int64_t window_axis) {
  for (size_t axis = 0; axis < 3; ++axis)
    if (variant.axes[axis] == window_axis) return variant.mirrored >> axis & 1;
  return false;
}

int allowed_bits(const Mirroring& mirroring) {
  int allowed = 0;
  for (const int64_t axis : mirroring.axes) allowed |= 1 << axis;
  return allowed;
}

std::vector<Variant> mirrorings_of(const Mirroring& mirroring) {
  std::vector<Variant> variants;
  for (int mirrored = 0; mirrored < 8; ++mirrored) {
    if ((mirrored & ~allowed_bits(mirroring)) != 0) continue;
    variants.push_back({.mirrored = mirrored});
    if (mirrors(variants.back(), mirroring.swap_axis)) variants.back().swapped = mirroring.swap_channels;
  }
  return variants;
}

// `second` after `first`; swapped channels are not looked at.
Variant after(const Variant& first, const Variant& second) {
  Variant both;
  for (size_t axis = 0; axis < 3; ++axis) {
    const auto from = static_cast<size_t>(second.axes[axis]);
    both.axes[axis] = first.axes[from];
    both.mirrored |= ((first.mirrored >> from & 1) ^ (second.mirrored >> axis & 1)) << axis;
  }
  return both;
}

// All that the allowed mirrorings and the quarter turns of square planes make of one another, the identity first.
std::vector<Variant> turned_and_mirrored(const Extent3& window, const Mirroring& mirroring) {
  std::vector<Variant> moves;
  for (int axis = 0; axis < 3; ++axis)
    if (allowed_bits(mirroring) >> axis & 1) moves.push_back({.mirrored = 1 << axis});
  for (int axis = 0; axis < 3; ++axis) {
    const int one = (axis + 1) % 3, other = (axis + 2) % 3;
    if (window[one] != window[other]) continue;
    Variant turn{.mirrored = 1 << one};
    std::swap(turn.axes[static_cast<size_t>(one)], turn.axes[static_cast<size_t>(other)]);
    moves.push_back(turn);
  }
  std::vector<Variant> all{Variant{}};
  for (size_t done = 0; done < all.size(); ++done)
    for (const Variant& move : moves)
      if (const Variant next = after(all[done], move); std::find(all.begin(), all.end(), next) == all.end())
        all.push_back(next);
  for (Variant& one : all)
    if (mirrors(one, mirroring.swap_axis)) one.swapped = mirroring.swap_channels;
  return all;
}

}  // namespace

Augment augment_from_name(const std::string& name) {
  if (name == "none") return Augment::kNone;
  if (name == "mirror") return Augment::kMirror;
  VOX_CHECK(name == "mirror_rotate", "inference.tta is \"", name, "\"; known: none mirror mirror_rotate");
  return Augment::kMirrorRotate;
}

Mirroring mirroring_of(const std::vector<const AugmentationOptions*>& trained) {
  Mirroring common;
  bool known = false;  // which channels change places
  for (const AugmentationOptions* const one : trained) {
    const FlipOptions& flip = one->flip;
    if (!one->enabled || !flip.enabled) continue;
    std::erase_if(common.axes,
                  [&](int64_t axis) { return std::find(flip.axes.begin(), flip.axes.end(), axis) == flip.axes.end(); });
    const bool same = flip.swap_channels == common.swap_channels &&
                      (flip.swap_channels.empty() || flip.swap_axis == common.swap_axis);
    VOX_CHECK(same || !known,
              "the networks of this ensemble learned mirrored input with other channels swapped "
              "(augmentation.flip.swap_channels); predict with each alone, or without --tta");
    common.swap_channels = flip.swap_channels;
    common.swap_axis = flip.swap_axis;
    known = true;
  }
  return common;
}

std::vector<Variant> variants_of(const Extent3& window, Augment augment, const Mirroring& mirroring) {
  if (augment == Augment::kNone) return {Variant{}};
  if (augment == Augment::kMirror) return mirrorings_of(mirroring);
  return turned_and_mirrored(window, mirroring);
}

at::Tensor forward_variants(const std::vector<Network*>& networks, const at::Tensor& image,
                            const std::vector<Variant>& variants, int64_t batch_size) {
  if (networks.size() == 1 && variants.size() == 1) return networks.front()->forward(image).front().to(at::kFloat);
  const int64_t count = image.size(0);
  const auto at_once = static_cast<size_t>(std::max<int64_t>(1, batch_size / count));
  at::Tensor sum;
  for (size_t first = 0; first < variants.size(); first += at_once) {
    const size_t last = std::min(first + at_once, variants.size());
    std::vector<at::Tensor> parts;
    for (size_t i = first; i < last; ++i) parts.push_back(apply(variants[i], image));
    const at::Tensor batch = parts.size() == 1 ? parts.front().contiguous() : at::cat(parts);
    for (Network* network : networks) {
      const at::Tensor output = network->forward(batch).front().to(at::kFloat);
      for (size_t i = first; i < last; ++i)
        add_to(sum, undo(variants[i], output.narrow(0, static_cast<int64_t>(i - first) * count, count)));
    }
  }
  return sum / static_cast<double>(variants.size() * networks.size());
}

}  // namespace vox
