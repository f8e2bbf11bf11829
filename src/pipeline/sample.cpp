#include "pipeline/sample.h"

#include "base/span.h"

namespace vox {
namespace {

constexpr const char* kImage = "image";
constexpr const char* kLabel = "label";
constexpr const char* kMask = "mask";

Role role_of(const std::string& array) {
  if (array == kImage) return Role::kImage;
  return array == kLabel ? Role::kLabel : Role::kMask;
}

void store_patch(const GatherOutput& output, const float* patch) {
  const int64_t voxels = output.extent.voxels();
  if (output.dtype == DType::kBFloat16) {
    auto* out = static_cast<BFloat16*>(output.data);
    for (int64_t i = 0; i < voxels; ++i) out[i * output.voxel_stride] = to_bfloat16(patch[i]);
  } else {
    auto* out = static_cast<float*>(output.data);
    for (int64_t i = 0; i < voxels; ++i) out[i * output.voxel_stride] = patch[i];
  }
}

}  // namespace

SampleMaker::SampleMaker(std::shared_ptr<Store> store, const DataOptions& data, const AugmentationOptions& augmentation,
                         const PipelineOptions& options)
    : store_(std::move(store)),
      data_(data),
      augmentation_(augmentation),
      seed_(options.seed),
      augment_(options.augment && augmentation.enabled),
      gather_on_(options.gather_on),
      box_memory_(options.box_memory),
      contexts_(store_, data.patch_size, augmentation) {
  const std::vector<int64_t>& cases = store_->dataset().of(options.split);
  VOX_CHECK(!cases.empty(), "no case is in the ",
            options.split == Split::kTrain        ? "training"
            : options.split == Split::kValidation ? "validation"
                                                  : "test",
            " split; see data.split, data.folds and training.fold, or run `voxloom inspect` on the recipe");
  const Case& first = store_->dataset().cases[static_cast<size_t>(cases.front())];
  has_label_ = !first.label.empty();
  has_mask_ = !first.mask.empty();
  for (const int64_t index : cases) {
    const Case& one = store_->dataset().cases[static_cast<size_t>(index)];
    VOX_CHECK(one.label.empty() != has_label_ && one.mask.empty() != has_mask_, "case ", one.id, " has ",
              one.label.empty() ? "no" : "a", " label and ", one.mask.empty() ? "no" : "a", " mask, but case ",
              first.id, " has ", has_label_ ? "a" : "no", " label and ", has_mask_ ? "a" : "no",
              " mask; all cases of a split must have the same");
  }
  sampler_ = make_sampler(*store_, cases, data_);
  for (const TargetOptions& target : options.targets) {
    VOX_CHECK(has_label_ && data_.target != "regression", "target ", target.name,
              " is made from a label of classes, which the data does not have");
    targets_.emplace_back("target." + target.name, make_target(target));
  }
}

std::vector<ArraySpec> SampleMaker::array_specs() const {
  const bool channels_last = data_.layout == "ndhwc";
  std::vector<ArraySpec> specs{{kImage, dtype_from_name(data_.patch_type), store_->image_channels(), channels_last}};
  if (has_label_) specs.push_back({kLabel, data_.target == "regression" ? DType::kFloat32 : DType::kUInt8, 1, false});
  if (has_mask_) specs.push_back({kMask, DType::kUInt8, 1, false});
  for (const auto& [name, target] : targets_) specs.push_back({name, target->dtype(), target->channels(), false});
  return specs;
}

// Targets are made from the label and the mask, on the host: then these are gathered there.
bool SampleMaker::on_device(const std::string& array) const {
  if (gather_on_ == GatherOn::kHost || array.starts_with("target.")) return false;
  return array == kImage || targets_.empty();
}

std::vector<ArraySpec> SampleMaker::host_arrays() const {
  std::vector<ArraySpec> specs = array_specs();
  std::erase_if(specs, [&](const ArraySpec& spec) { return on_device(spec.name); });
  return specs;
}

std::vector<ArraySpec> SampleMaker::device_arrays() const {
  std::vector<ArraySpec> specs = array_specs();
  std::erase_if(specs, [&](const ArraySpec& spec) { return !on_device(spec.name); });
  return specs;
}

GatherOptions SampleMaker::gather_options(const std::string& array) const {
  GatherOptions options{.interpolation = Interpolation::kLinear,
                        .padding = padding_of(data_.padding),
                        .pad_value = static_cast<float>(data_.pad_value)};
  if (array == kImage) return options;
  const bool regression = array == kLabel && data_.target == "regression";
  const bool weighed = array == kLabel && augmentation_.label_interpolation == "linear";
  options.interpolation = regression ? Interpolation::kLinear
                          : weighed  ? Interpolation::kLabel
                                     : Interpolation::kNearest;
  options.pad_value = array == kLabel && data_.ignore_label >= 0 ? static_cast<float>(data_.ignore_label) : 0.0f;
  return options;
}

Box3 SampleMaker::box_of(const PreparedSample& sample, const std::string& array) const {
  const Extent3& volume = store_->facts(sample.info.case_index).extent;
  return read_box(sample.map, data_.patch_size, gather_options(array), volume);
}

PreparedSample SampleMaker::read(int64_t sample) const {
  PreparedSample prepared;
  const Span draw("draw");
  const PatchChoice choice = sampler_->choose(seed_, sample);
  const Spacing3& spacing = store_->facts(choice.case_index).spacing;
  prepared.info = {.sample = sample, .case_index = choice.case_index, .begin = choice.begin, .spacing = spacing};
  if (augment_)
    prepared.drawn = draw_transforms(augmentation_, contexts_.of(choice.case_index, choice.begin), seed_, sample);
  prepared.map = to_gather_map(prepared.drawn, choice.begin, data_.patch_size);

  const Span span("fetch");
  const auto fetch = [&](const char* name, int64_t channel) {
    const int64_t from = name == kImage ? prepared.drawn.channel_to_read(channel) : channel;
    PreparedArray part{name, channel, {choice.case_index, role_of(name), from}, {}};
    if (!on_device(name) || gather_on_ == GatherOn::kDeviceFromBoxes)
      part.block = store_->fetch(choice.case_index, role_of(name), from, box_of(prepared, name));
    prepared.parts.push_back(std::move(part));
  };
  for (int64_t channel = 0; channel < store_->image_channels(); ++channel) fetch(kImage, channel);
  if (has_label_) fetch(kLabel, 0);
  if (has_mask_) fetch(kMask, 0);
  return prepared;
}

void SampleMaker::fill(const PreparedSample& sample, int64_t place, Slot& slot) const {
  for (const PreparedArray& part : sample.parts) {
    if (on_device(part.name)) continue;
    BatchArray& array = slot.arrays.at(part.name);
    if (part.name == kImage) {
      fill_image(sample, part, place, array);
      continue;
    }
    const Span span("gather");
    gather_cpu(output_of(array, place, part.channel), part.block.view, sample.map, gather_options(part.name));
  }
  fill_targets(sample, place, slot);
}

DeviceSample SampleMaker::for_device(const PreparedSample& sample) const {
  DeviceSample made{sample.map, {}};
  for (const PreparedArray& part : sample.parts) {
    if (!on_device(part.name)) continue;
    DeviceGather gather{.array = part.name,
                        .channel = part.channel,
                        .source = part.source,
                        .options = gather_options(part.name),
                        .steps = {},
                        .box = part.block.view,
                        .memory = {}};
    if (part.name == kImage) gather.steps = steps_of(sample.drawn, part.channel);
    if (gather_on_ == GatherOn::kDeviceFromBoxes) {
      const Span span("box_copy");
      const Box3 box = box_of(sample, part.name);
      if (!box.empty()) gather.memory = box_memory_(box.voxels() * size_of(gather.box.dtype));
      gather.box = copy_box(part.block.view, box.empty() ? Box3{gather.box.box.begin, gather.box.box.begin} : box,
                            gather.memory.get());
    }
    made.gathers.push_back(std::move(gather));
  }
  return made;
}

void SampleMaker::fill_targets(const PreparedSample& sample, int64_t place, Slot& slot) const {
  if (targets_.empty()) return;
  const auto bytes_of = [&](const char* array) {
    return static_cast<const uint8_t*>(output_of(slot.arrays.at(array), place, 0).data);
  };
  const LabelPatch patch{.labels = bytes_of(kLabel),
                         .extent = data_.patch_size,
                         .spacing = sample.info.spacing,
                         .ignore_label = data_.ignore_label,
                         .mask = has_mask_ ? bytes_of(kMask) : nullptr};
  for (const auto& [name, target] : targets_) {
    const Span span("target");
    target->make(patch, static_cast<std::byte*>(output_of(slot.arrays.at(name), place, 0).data));
  }
}

// Intensity transforms want a dense float32 patch: in place where the slot is one, else in scratch.
void SampleMaker::fill_image(const PreparedSample& sample, const PreparedArray& part, int64_t place,
                             BatchArray& array) const {
  const GatherOutput output = output_of(array, place, part.channel);
  GatherOutput dense = output;
  const bool in_place = output.dtype == DType::kFloat32 && output.voxel_stride == 1;
  thread_local std::vector<float> scratch;
  if (!sample.drawn.intensity.empty() && !in_place) {
    scratch.resize(static_cast<size_t>(output.extent.voxels()));
    dense = {.data = scratch.data(), .dtype = DType::kFloat32, .extent = output.extent, .voxel_stride = 1};
  }
  {
    const Span span("gather");
    gather_cpu(dense, part.block.view, sample.map, gather_options(kImage));
  }
  for (const auto& [name, apply] : sample.drawn.intensity) {
    const Span span(name);
    apply({.data = static_cast<float*>(dense.data), .extent = dense.extent, .channel = part.channel});
  }
  if (dense.data != output.data) store_patch(output, static_cast<const float*>(dense.data));
}

std::string SampleMaker::case_id(int64_t sample) const {
  try {
    return store_->dataset().cases[static_cast<size_t>(sampler_->choose(seed_, sample).case_index)].id;
  } catch (const std::exception&) {
    return "";  // the choice itself failed, and its own message says why
  }
}

}  // namespace vox
