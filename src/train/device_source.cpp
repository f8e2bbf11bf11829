#include "train/device_source.h"

#include "ops/device.h"
#include "train/learner.h"

namespace vox {

TrainingSource training_source(const SourceRequest& request) {
  PlacementFacts facts{.in_memory = request.store->counts().in_memory};
  if constexpr (cuda::kCompiledIn)
    if (request.device.is_cuda()) facts = gpu_facts(request);
  const Placement placement = decide_placement(request.options.data.placement, facts);
  if constexpr (cuda::kCompiledIn)
    if (placement.gather_on != GatherOn::kHost) return device_source(request, placement);
  std::shared_ptr<Pipeline> pipeline =
      training_pipeline(request.store, request.options, request.first_sample, request.micro_batch, request.data_threads,
                        GatherOn::kHost, {}, request.place);
  BatchSource next = source_of(*pipeline, request.device, request.export_folder);
  return {placement, std::move(pipeline), std::move(next)};
}

}  // namespace vox
