// A sample that the GPU is to make: where its voxels come from, the map, and what follows. Small: the voxels lie on the
// GPU already, or travel as the box that the map reads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/gather.h"
#include "kernels/intensity_steps.h"
#include "volume/store.h"

namespace vox {

struct AugmentationOptions;

enum class GatherOn { kHost, kDevice, kDeviceFromBoxes };

// Host memory of a box on its way to the device; any thread calls it.
using BoxMemory = std::function<std::shared_ptr<std::byte>(int64_t bytes)>;

struct VolumeName {
  int64_t case_index = 0;
  Role role = Role::kImage;
  int64_t channel = 0;
  auto operator<=>(const VolumeName&) const = default;
};

struct DeviceGather {  // of one channel
  std::string array;   // of the batch
  int64_t channel = 0;
  VolumeName source;
  GatherOptions options;
  std::vector<IntensityStep> steps;
  VolumeView box;                     // with kDeviceFromBoxes, dense; its data is null where all is padding
  std::shared_ptr<std::byte> memory;  // of the box
  int64_t box_bytes() const { return box.data ? box.box.voxels() * size_of(box.dtype) : 0; }
};

struct DeviceSample {
  GatherMap map;
  std::vector<DeviceGather> gathers;
};

// Why a recipe's samples cannot be made on a GPU; empty: they can.
std::string why_on_host(const AugmentationOptions& augmentation);

// The voxels of `box` alone, in memory of their own.
VolumeView copy_box(const VolumeView& view, const Box3& box, std::byte* memory);

}  // namespace vox
