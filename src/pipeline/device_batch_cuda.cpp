#include "base/error.h"
#include "kernels/intensity_cuda.h"
#include "pipeline/device_batch.h"
#include "pipeline/slots.h"

namespace vox {
namespace {

const float* deformation_table(const GatherMap& map, cuda::Tables& tables) {
  if (!map.deformation) return nullptr;
  std::vector<float> values(static_cast<size_t>(cuda::deformation_values(*map.deformation)));
  cuda::write_deformation(*map.deformation, values.data());
  return tables.add(values);
}

}  // namespace

DevicePlan plan_on_device(const DevicePlanRequest& request) {
  DevicePlan plan;
  cuda::Tables tables(request.tables);
  for (size_t place = 0; place < request.samples.size(); ++place) {
    const DeviceSample& sample = request.samples[place];
    const float* deformation = deformation_table(sample.map, tables);
    DeviceWork plain;  // what only moves or interpolates: channels that lie side by side are written together
    for (const DeviceGather& gather : sample.gathers) {
      const GatherOutput output =
          output_of(request.arrays.at(gather.array), static_cast<int64_t>(place), gather.channel);
      const auto task_to = [&](const GatherOutput& to) {
        return cuda::gather_task(to, request.voxels_of(gather), sample.map, gather.options, deformation);
      };
      if (gather.steps.empty()) {
        plain.gathers.push_back(task_to(output));
        continue;
      }
      // Transforms want a dense float32 patch: the batch's own where it is one.
      const bool dense = output.dtype == DType::kFloat32 && output.voxel_stride == 1;
      cuda::PatchMemory memory = request.memory;
      if (dense) memory.plane[0] = static_cast<float*>(output.data);
      plan.work.push_back({{task_to({.data = memory.plane[0], .extent = output.extent})},
                           cuda::plan_passes(gather.steps, output, memory, tables)});
    }
    plan.work.push_back(std::move(plain));
  }
  plan.tables = tables.bytes();
  return plan;
}

void enqueue(const DevicePlan& plan, cuda::Stream stream) {
  for (const DeviceWork& work : plan.work) {
    cuda::gather(work.gathers, stream);
    cuda::run_passes(work.passes, stream);
  }
}

}  // namespace vox
