// Weights of any format that is known: safetensors, checkpoints, PyTorch's and Keras's files.
#pragma once

#include <string>
#include <vector>

#include "io/array_file.h"
#include "nets/weights_import.h"

namespace vox::cli {

struct OpenedWeights {
  std::vector<ArrayEntry> tensors;  // as they stand in the file
  WeightsSource source;             // Keras's layers under the names of our network
};

enum class KerasNames { kOwn, kTorch };
// `entry`: which dict of a PyTorch file; "" is to find it.
OpenedWeights open_weights(const std::string& path, const std::string& entry, KerasNames names = KerasNames::kTorch);

}  // namespace vox::cli
