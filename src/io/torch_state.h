// From a pickle of torch.save to the tensors of the state dict in it: names, types, shapes, and which bytes of which
// storage. No bytes are read here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/pickle.h"

namespace vox {

struct TorchTensor {
  std::string name, dtype, storage;  // key of the storage
  int64_t item_bytes = 0, storage_items = 0, offset = 0;
  std::vector<int64_t> shape, stride;
  int64_t count() const;
  bool contiguous() const;
};

// `entry`: which dict holds the weights, by its name or path ("state_dict"); empty is to find it.
std::vector<TorchTensor> find_state_dict(const Pickle& pickle, const std::string& entry, const std::string& path);

}  // namespace vox
