// Weights between a network, tensors by name and safetensors files.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "nets/network.h"
#include "nets/safetensors.h"

namespace vox {

using TensorMap = std::map<std::string, at::Tensor>;

std::string safetensors_type(at::ScalarType type);
at::Tensor read_tensor(const SafetensorsFile& file, const StoredTensor& tensor);  // on the CPU
// The tensor must be contiguous, on the CPU, and outlive the result.
TensorToStore tensor_to_store(const std::string& name, const at::Tensor& tensor);

enum class Missing { kFail, kKeep };
struct LoadReport {
  std::vector<std::string> missing, unexpected;
};
// Sets masters (and shadows) by name. Entries that the original networks store a second time are passed over.
// Error lists what is missing, unexpected or of another shape; with kKeep only shapes are errors.
LoadReport load_weights(Network& network, const TensorMap& weights, Missing missing = Missing::kFail);
LoadReport load_weights(Network& network, const SafetensorsFile& file, const std::string& prefix = "",
                        Missing missing = Missing::kFail);

// What rebuilds a network, as metadata: the options of section `model` as text, by their names.
Metadata describe(const ModelOptions& options);
// And back. The names may carry the section ("model.filters"); `overrides` are key=value of the same kind and win.
ModelOptions model_options(const Metadata& metadata, const std::vector<std::string>& overrides = {});

}  // namespace vox
