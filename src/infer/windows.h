// Where windows lie in a volume, and how much each of their voxels counts.
#pragma once

#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "base/shape.h"

namespace vox {

enum class Blend { kConstant, kGaussian, kBump };
Blend blend_from_name(const std::string& name);

// First voxels along one axis, as MONAI places them: a stride of window * (1 - overlap), rounded down, and the last
// window ends with the volume. One that is negative where the volume is smaller than the window: it lies in the middle.
std::vector<int64_t> axis_begins(int64_t size, int64_t window, double overlap);

// A window begins at every z with every y and every x: a large volume has more windows than are kept as a list.
struct WindowPlaces {
  std::vector<int64_t> z, y, x;
  int64_t in_layer() const { return std::ssize(y) * std::ssize(x); }
  int64_t count() const { return std::ssize(z) * in_layer(); }
  std::vector<Extent3> layer(int64_t at_z) const;
};
// They cover `region`, and lie inside the volume wherever it has room for them. With a shift each is there twice along
// that axis, moved by as much back and on, be it out of the volume.
WindowPlaces window_places(const Extent3& volume, const Extent3& window, double overlap, const Box3& region,
                           const Extent3& shift = {});
// The list of them; z runs slowest.
std::vector<Extent3> window_begins(const Extent3& volume, const Extent3& window, double overlap);
std::vector<Extent3> window_begins(const Extent3& volume, const Extent3& window, double overlap, const Box3& region,
                                   const Extent3& shift = {});

// One weight a voxel of the window, at most 1 and never below a thousandth: equal, a gaussian of an eighth of the
// window (as MONAI and nnU-Net), or the bump exp(1 - 1 / (1 - u^2)) of each axis (as PyTorch Connectomics), with u from
// -1 to 1 between the faces of the window.
std::vector<float> blend_weights(const Extent3& window, Blend blend);

}  // namespace vox
