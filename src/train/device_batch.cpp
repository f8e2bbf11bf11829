#include "train/device_batch.h"

#include <torch/torch.h>

#include <cstring>

#include "base/error.h"

namespace vox {

at::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::kUInt8:
      return at::kByte;
    case DType::kInt8:
      return at::kChar;
    case DType::kInt16:
      return at::kShort;
    case DType::kInt32:
      return at::kInt;
    case DType::kFloat32:
      return at::kFloat;
    case DType::kFloat64:
      return at::kDouble;
    case DType::kBFloat16:
      return at::kBFloat16;
    case DType::kUInt16:
    case DType::kUInt32:
      break;
  }
  throw Error(concat("internal error: a batch of type ", name_of(dtype)), Fault::kBug);
}

namespace {

at::Tensor view_of_slot(const BatchArray& array) {
  const std::vector<int64_t>& s = array.shape;
  std::vector<int64_t> strides{s[1] * s[2] * s[3] * s[4], s[2] * s[3] * s[4], s[3] * s[4], s[4], 1};
  if (array.channels_last) strides = {s[1] * s[2] * s[3] * s[4], 1, s[3] * s[4] * s[1], s[4] * s[1], s[1]};
  return at::from_blob(array.data, s, strides, at::TensorOptions().dtype(scalar_type(array.dtype)));
}

at::Tensor array_to_device(const BatchArray& array, const at::Device& device) {
  const at::Tensor view = view_of_slot(array);
  if (device.is_cpu()) return view;
  // Pinned memory comes from torch's cache, which hands a block out again only when the copy from it is done.
  at::Tensor pinned = at::empty_strided(view.sizes(), view.strides(), view.options().pinned_memory(true));
  std::memcpy(pinned.data_ptr(), view.data_ptr(), static_cast<size_t>(array.bytes()));
  return pinned.to(device, /*non_blocking=*/true);
}

}  // namespace

DeviceBatch to_device(const Batch& batch, const at::Device& device) {
  DeviceBatch result{.image = {}, .targets = {}, .samples = batch.samples, .slot = batch.slot};
  for (const auto& [name, array] : batch.arrays) {
    const at::Tensor tensor = array_to_device(array, device);
    if (name == "image")
      result.image = result.targets.image = tensor;
    else if (name == "label")
      result.targets.label = tensor;
    else if (name == "mask")
      result.targets.mask = tensor;
    else
      result.targets.extra[name.substr(name.find('.') + 1)] = tensor;
  }
  if (!device.is_cpu()) result.slot.reset();  // the pinned copy is read from here on
  return result;
}

}  // namespace vox
