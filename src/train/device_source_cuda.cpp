#include <ATen/DeviceAccelerator.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/torch.h>

#include <optional>

#include "base/span.h"
#include "ops/device.h"
#include "pipeline/device_batch.h"
#include "train/data_clock.h"
#include "train/device_source.h"
#include "train/learner.h"

namespace vox {
namespace {

constexpr int64_t kKeptAtLeast = int64_t{2} << 30;  // for plans, kernels, and whoever else uses the GPU
constexpr int64_t kTableBytes = int64_t{1} << 20;   // to begin with

at::TensorOptions bytes_on(const at::Device& device) {
  return at::TensorOptions(device).dtype(at::kByte);
}

// Volumes of the training cases, whole and in their stored type.
class ResidentVolumes {
 public:
  ResidentVolumes(Store& store, const at::Device& device) {
    const Dataset& dataset = store.dataset();
    for (const int64_t index : dataset.train) {
      const Case& files = dataset.cases[static_cast<size_t>(index)];
      for (int64_t channel = 0; channel < store.image_channels(); ++channel)
        add(store, {index, Role::kImage, channel}, device);
      if (!files.label.empty()) add(store, {index, Role::kLabel, 0}, device);
      if (!files.mask.empty()) add(store, {index, Role::kMask, 0}, device);
    }
  }
  const VolumeView& view(const VolumeName& name) const { return volumes_.at(name).view; }

 private:
  struct Held {
    at::Tensor memory;
    VolumeView view;
  };

  void add(Store& store, const VolumeName& name, const at::Device& device) {
    const Extent3& extent = store.facts(name.case_index).extent;
    const Block block = store.fetch(name.case_index, name.role, name.channel, whole(extent));
    VolumeView view = block.view;
    const bool dense = view.box == whole(extent) && view.stride_y == extent.x && view.stride_z == extent.y * extent.x;
    const int64_t bytes = extent.voxels() * size_of(view.dtype);
    Buffer copy(dense ? 0 : bytes);
    if (!dense) view = copy_box(view, whole(extent), copy.data());
    at::Tensor memory;
    try {
      memory = at::empty({bytes}, bytes_on(device));
    } catch (const c10::OutOfMemoryError&) {
      throw Error("the training volumes do not fit on the GPU after all; use data.placement=host", Fault::kMachine);
    }
    memory.copy_(at::from_blob(const_cast<std::byte*>(view.data), {bytes}, at::kByte));
    view.data = static_cast<const std::byte*>(memory.data_ptr());
    volumes_.emplace(name, Held{memory, view});
  }

  std::map<VolumeName, Held> volumes_;
};

void put(DeviceBatch& batch, const std::string& name, const at::Tensor& tensor) {
  if (name == "image")
    batch.image = batch.targets.image = tensor;
  else if (name == "label")
    batch.targets.label = tensor;
  else
    batch.targets.mask = tensor;
}

void export_tensors(const DeviceBatch& made, const std::string& folder) {
  Batch batch;
  batch.samples = made.samples;
  std::vector<at::Tensor> kept;
  const auto add = [&](const std::string& name, const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    kept.push_back(tensor.to(at::kCPU).contiguous());
    const DType dtype = tensor.scalar_type() == at::kByte       ? DType::kUInt8
                        : tensor.scalar_type() == at::kChar     ? DType::kInt8
                        : tensor.scalar_type() == at::kBFloat16 ? DType::kBFloat16
                                                                : DType::kFloat32;
    batch.arrays[name] = {.dtype = dtype,
                          .shape = tensor.sizes().vec(),
                          .channels_last = false,
                          .data = static_cast<std::byte*>(kept.back().data_ptr())};
  };
  add("image", made.image);
  add("label", made.targets.label);
  add("mask", made.targets.mask);
  for (const auto& [name, tensor] : made.targets.extra) add("target." + name, tensor);
  export_batch(batch, folder);
}

// Images of several channels are written as the network would convert them: its first pass over them is spared. Losses
// that look at the image see what the network sees.
ArraySpec as_read(ArraySpec spec, const SourceRequest& request) {
  if (spec.name != "image" || spec.channels == 1 || !request.learner || !request.export_folder.empty()) return spec;
  const ParameterSet& parameters = request.learner->network->parameters();
  const bool converts =
      parameters.compute_type() == at::kBFloat16 && parameters.memory_format() == at::MemoryFormat::ChannelsLast3d;
  if (!converts) return spec;
  spec.dtype = DType::kBFloat16;
  spec.channels_last = true;
  return spec;
}

// Two sets of tensors take turns: while a step reads one, the next batch is made in the other, on a stream of its own.
class DeviceSource {
 public:
  DeviceSource(const SourceRequest& request, Pipeline& pipeline, std::shared_ptr<const ResidentVolumes> resident)
      : pipeline_(pipeline),
        resident_(std::move(resident)),
        device_(request.device),
        streams_(at::kCUDA),
        side_(streams_.getStreamFromGlobalPool(device_)),
        clock_(device_),
        export_folder_(request.export_folder) {
    const Extent3& patch = request.options.data.patch_size;
    for (at::Tensor& plane : planes_) plane = at::empty({patch.voxels()}, at::TensorOptions(device_).dtype(at::kFloat));
    moments_ = at::empty({static_cast<int64_t>(sizeof(cuda::MomentMemory))}, bytes_on(device_));
    for (Outputs& outputs : outputs_) allocate(outputs, request);
  }
  ~DeviceSource() {  // what is made ahead still writes here
    try {
      side_.synchronize();
    } catch (const std::exception&) {  // the GPU has failed: whoever used it says so
    }
  }
  DeviceSource(const DeviceSource&) = delete;
  DeviceSource& operator=(const DeviceSource&) = delete;

  DeviceBatch next(StageTimes& times) {
    if (!ahead_) start(times);
    Ahead now = std::move(*ahead_);
    ahead_.reset();
    now.ready.block(streams_.getStream(device_));
    if (pipeline_.ready()) start(times);
    if (!export_folder_.empty()) export_tensors(now.batch, export_folder_);
    return std::move(now.batch);
  }

 private:
  struct Outputs {
    std::map<std::string, at::Tensor> tensors;
    std::map<std::string, BatchArray> arrays;  // the same
    at::Tensor tables;
  };
  struct Ahead {
    DeviceBatch batch;
    c10::Event ready{at::kCUDA};
  };

  void allocate(Outputs& outputs, const SourceRequest& request) {
    const Extent3& patch = request.options.data.patch_size;
    for (const ArraySpec& made : pipeline_.device_arrays()) {
      const ArraySpec spec = as_read(made, request);
      BatchArray array{.dtype = spec.dtype,
                       .shape = {request.micro_batch, spec.channels, patch.z, patch.y, patch.x},
                       .channels_last = spec.channels_last};
      const auto options = at::TensorOptions(device_).dtype(scalar_type(spec.dtype));
      const at::Tensor tensor = spec.channels_last ? at::empty(array.shape, options, at::MemoryFormat::ChannelsLast3d)
                                                   : at::empty(array.shape, options);
      array.data = static_cast<std::byte*>(tensor.data_ptr());
      outputs.tensors[spec.name] = tensor;
      outputs.arrays[spec.name] = array;
    }
    const c10::StreamGuard guard(side_);  // freed there too, where it is too small
    outputs.tables = at::empty({kTableBytes}, bytes_on(device_));
  }

  void start(StageTimes& times) {
    Batch host;
    clock_.begin();
    {
      const Span span("data_wait");
      VOX_ASSERT(pipeline_.next(host));
    }
    times[Stage::kDataWait] += clock_.end();
    const auto sending = Clock::now();
    {
      const Span span("transfer");
      make(host);
    }
    times[Stage::kTransfer] += seconds_since(sending);
  }

  void make(const Batch& host) {
    Outputs& outputs = outputs_[turn_];
    turn_ = 1 - turn_;
    const c10::Stream user = streams_.getStream(device_);
    c10::Event used(at::kCUDA);  // whatever read these tensors is enqueued by now
    used.record(user);
    const c10::StreamGuard guard(side_);
    used.block(side_);
    ahead_.emplace();
    ahead_->batch = to_device(host, device_);
    for (at::Tensor* tensor : {&ahead_->batch.targets.label, &ahead_->batch.targets.mask})
      if (tensor->defined()) tensor->record_stream(user);
    for (auto& [name, tensor] : ahead_->batch.targets.extra) tensor.record_stream(user);
    enqueue(planned(host, outputs, boxes_of(host)), ops::current_stream(moments_));
    for (const auto& [name, tensor] : outputs.tensors) put(ahead_->batch, name, tensor);
    ahead_->ready.record(side_);
  }

  using Boxes = std::map<const DeviceGather*, at::Tensor>;
  Boxes boxes_of(const Batch& host) const {
    Boxes boxes;
    for (const DeviceSample& sample : host.on_device)
      for (const DeviceGather& gather : sample.gathers) {
        if (gather.box_bytes() == 0) continue;
        at::Tensor box = at::empty({gather.box_bytes()}, bytes_on(device_));
        const at::Tensor pinned = at::from_blob(gather.memory.get(), {gather.box_bytes()}, at::kByte);
        box.copy_(pinned, /*non_blocking=*/true);
        boxes.emplace(&gather, box);
      }
    return boxes;
  }

  DevicePlan planned(const Batch& host, Outputs& outputs, const Boxes& boxes) const {
    const auto voxels_of = [&](const DeviceGather& gather) {
      if (resident_) return resident_->view(gather.source);
      VolumeView view = gather.box;
      const auto box = boxes.find(&gather);
      view.data = box == boxes.end() ? nullptr : static_cast<const std::byte*>(box->second.data_ptr());
      return view;
    };
    const auto plan_at = [&](const at::Tensor& tables) {
      return plan_on_device(
          {.samples = host.on_device,
           .arrays = outputs.arrays,
           .voxels_of = voxels_of,
           .memory = {{planes_[0].data_ptr<float>(), planes_[1].data_ptr<float>(), planes_[2].data_ptr<float>()},
                      static_cast<cuda::MomentMemory*>(moments_.data_ptr())},
           .tables = static_cast<const std::byte*>(tables.data_ptr())});
    };
    DevicePlan plan = plan_at(outputs.tables);
    const int64_t bytes = static_cast<int64_t>(plan.tables.size());
    if (bytes > outputs.tables.numel()) {
      outputs.tables = at::empty({2 * bytes}, bytes_on(device_));
      plan = plan_at(outputs.tables);
    }
    if (bytes == 0) return plan;
    const at::Tensor pinned = at::empty({bytes}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
    std::memcpy(pinned.data_ptr(), plan.tables.data(), plan.tables.size());
    outputs.tables.narrow(0, 0, bytes).copy_(pinned, /*non_blocking=*/true);
    return plan;
  }

  Pipeline& pipeline_;
  std::shared_ptr<const ResidentVolumes> resident_;  // null: boxes come with each batch
  at::Device device_;
  c10::impl::VirtualGuardImpl streams_;
  c10::Stream side_;
  DataClock clock_;
  std::string export_folder_;
  at::Tensor planes_[3], moments_;
  Outputs outputs_[2];
  int turn_ = 0;
  std::optional<Ahead> ahead_;
};

std::shared_ptr<std::byte> pinned_bytes(int64_t bytes) {
  const at::Tensor memory = at::empty({bytes}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
  return {static_cast<std::byte*>(memory.data_ptr()), [memory](std::byte*) {}};
}

// What a checkpoint copies on the GPU before it leaves.
int64_t snapshot_bytes(const Learner& learner) {
  int64_t bytes = 0;
  const auto add = [&](const at::Tensor& tensor) {
    if (tensor.defined()) bytes += static_cast<int64_t>(tensor.nbytes());
  };
  for (const Parameter& parameter : learner.network->parameters().all()) add(parameter.master), add(parameter.ema);
  for (const auto& [name, tensor] : learner.optimizer->state()) add(tensor);
  return bytes;
}

}  // namespace

PlacementFacts gpu_facts(const SourceRequest& request) {
  at::empty({1}, bytes_on(request.device));  // before its first tensor the allocator knows no device
  auto* allocator = at::getDeviceAllocator(at::kCUDA);
  const at::DeviceIndex index = request.device.index() < 0 ? at::DeviceIndex{0} : request.device.index();
  PlacementFacts facts{.on_gpu = true,
                       .why_on_host = why_on_host(request.options.augmentation),
                       .in_memory = request.store->counts().in_memory,
                       .free_bytes = static_cast<int64_t>(allocator->getMemoryInfo(index).first)};
  for (const int64_t one : request.store->dataset().train) facts.volume_bytes += request.store->stored_bytes(one);
  // A captured step has a pool of its own, which may grow as large as that of the step that was rehearsed.
  const int64_t step_bytes = allocator->getDeviceStats(index).reserved_bytes[0].peak;
  facts.kept_bytes = std::max(kKeptAtLeast, step_bytes) + (request.learner ? snapshot_bytes(*request.learner) : 0);
  return facts;
}

TrainingSource device_source(const SourceRequest& request, const Placement& placement) {
  const bool resident = placement.gather_on == GatherOn::kDevice;
  std::shared_ptr<const ResidentVolumes> volumes;
  if (resident) volumes = std::make_shared<ResidentVolumes>(*request.store, request.device);
  std::shared_ptr<Pipeline> pipeline =
      training_pipeline(request.store, request.options, request.first_sample, request.micro_batch, request.data_threads,
                        placement.gather_on, pinned_bytes, request.place);
  auto source = std::make_shared<DeviceSource>(request, *pipeline, std::move(volumes));
  return {placement, std::move(pipeline), [source](StageTimes& times) { return source->next(times); }};
}

}  // namespace vox
