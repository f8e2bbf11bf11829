// Types of tensors as PyTorch names them, and which names a pickle of tensors may use.
#pragma once

#include <cstdint>
#include <string>

#include "io/pickle.h"

namespace vox {

struct TorchType {
  const char* storage;  // class of a typed storage; null where there is only the untyped one
  const char* dtype;    // torch.<dtype>
  const char* name;     // as safetensors writes it
  int64_t bytes;
};

const TorchType* torch_type_of_storage(const std::string& global);  // "torch.FloatStorage"; null: unknown
const TorchType* torch_type_of_dtype(const std::string& global);    // "torch.uint16"; null: unknown
const TorchType* torch_type_named(const std::string& name);         // "F32"; null: unknown

PickleRules torch_pickle_rules();

}  // namespace vox
