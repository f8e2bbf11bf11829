// What every format says of a volume, and a volume (or a box of one) in memory, in its stored type.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/buffer.h"
#include "base/dtype.h"
#include "base/shape.h"

namespace vox {

// Where a voxel lies in the world. Rows give world x, y, z in mm from voxel (x, y, z, 1), as NIfTI writes it.
using Affine = std::array<std::array<double, 4>, 3>;

struct VolumeInfo {
  DType dtype = DType::kUInt8;
  Extent3 extent;
  int64_t channels = 1;             // each channel is a whole z,y,x volume; channel first
  std::optional<Spacing3> spacing;  // absent where the file does not say
  std::optional<Affine> affine;     // absent where the file does not say
  double scale = 1, offset = 0;     // value = stored * scale + offset
  std::string format;               // registry name of the format
  std::string codec = "none";       // how voxels are packed in the file
  Extent3 chunk;                    // what one decode yields (a strip, a tile, a page, a chunk); zero: any box alone

  int64_t voxels() const { return extent.voxels() * channels; }
  int64_t bytes() const { return voxels() * size_of(dtype); }
};

struct Volume {
  VolumeInfo info;
  Buffer data;  // channel, z, y, x; x runs fastest

  template <class T>
  const T* as() const {
    return data.as<T>();
  }
};

Volume allocate_volume(const VolumeInfo& info);

// Borrowed voxels of one channel: `data` points at box.begin, rows and slices lie `stride` elements apart.
struct VolumeView {
  const std::byte* data = nullptr;
  DType dtype = DType::kUInt8;
  Box3 box;        // the part of the volume that is here
  Extent3 extent;  // of the whole volume
  int64_t stride_z = 0, stride_y = 0;
  double scale = 1, offset = 0;
};

VolumeView view_of(const Volume& volume, int64_t channel = 0);

}  // namespace vox
