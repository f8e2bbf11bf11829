// What a batch leaves to the GPU, planned on the host and then enqueued: gathers, and the passes of intensity
// transforms.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kernels/gather_cuda.h"
#include "kernels/intensity_passes.h"
#include "pipeline/pipeline.h"

namespace vox {

struct DeviceWork {  // of a sample
  std::vector<cuda::GatherTask> gathers;
  std::vector<cuda::Pass> passes;  // over the patch of the last of them
};

struct DevicePlan {
  std::vector<DeviceWork> work;
  std::vector<std::byte> tables;  // to be copied to where they were planned to lie, before the work is enqueued
};

struct DevicePlanRequest {
  const std::vector<DeviceSample>& samples;
  const std::map<std::string, BatchArray>& arrays;                  // on the device
  std::function<VolumeView(const DeviceGather& gather)> voxels_of;  // on the device
  cuda::PatchMemory memory;                                         // a patch each; used by one sample after the other
  const std::byte* tables = nullptr;
};
DevicePlan plan_on_device(const DevicePlanRequest& request);
void enqueue(const DevicePlan& plan, cuda::Stream stream);

}  // namespace vox
