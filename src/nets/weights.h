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
// Error begins with `what` (a tensor of a file) where weights never have the type.
at::ScalarType scalar_type(const std::string& safetensors_type, const std::string& what);
at::Tensor read_tensor(const SafetensorsFile& file, const StoredTensor& tensor);  // on the CPU
// The tensor must be contiguous, on the CPU, and outlive the result.
TensorToStore tensor_to_store(const std::string& name, const at::Tensor& tensor);

enum class Missing {
  kFail,  // everything fits, or Error
  kKeep,  // tensors may be missing or unexpected; those of another shape are an Error
  kSkip,  // those of another shape are passed over too
};
struct LoadReport {
  std::vector<std::string> missing, unexpected, misshapen;
};
// Error lists what is missing, unexpected or of another shape, as far as `missing` does not allow it, and where nothing
// fits at all. `path` is the file of the weights.
void require_fit(const LoadReport& report, const Network& network, const std::string& path, Missing missing);
std::string some_of(const std::vector<std::string>& names);  // "a, b, ... (12 in all)"

// Sets masters (and shadows) by name. Entries that the original networks store a second time are passed over. Of a
// checkpoint it is the weights that are taken, not their average.
LoadReport load_weights(Network& network, const TensorMap& weights, Missing missing = Missing::kFail);
LoadReport load_weights(Network& network, const SafetensorsFile& file, const std::string& prefix = "",
                        Missing missing = Missing::kFail);
// What to say of weights that were loaded with kKeep: how many tensors were drawn afresh, how many of the file skipped,
// and the first of each. Empty where all fit. `path` is the file.
std::string partial_note(const LoadReport& report, const Network& network, const std::string& path);

// What rebuilds a network, as metadata: the options of section `model` as text, by their names.
Metadata describe(const ModelOptions& options);
// And back. The names may carry the section ("model.filters"); `overrides` are key=value of the same kind and win.
ModelOptions model_options(const Metadata& metadata, const std::vector<std::string>& overrides = {});

}  // namespace vox
