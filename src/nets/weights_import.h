// Weights of other programs into a network of ours: recognised by names and shapes, checked, and stored with what
// rebuilds the network.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "nets/recognise.h"
#include "nets/weights.h"

namespace vox {

// A file of named tensors, whichever its format. Names and shapes are known; a tensor is read when it is needed.
struct WeightsSource {
  std::string path;
  Metadata metadata;
  ShapeMap shapes;
  std::function<at::Tensor(const std::string& name)> read;
};

WeightsSource source_of(std::shared_ptr<const SafetensorsFile> file);
// A Keras model's arrays, named by their places in the file, as the tensors of openkbp_unet.
WeightsSource from_keras(const WeightsSource& keras);

struct ImportRequest {
  std::string architecture;            // "": what the file says, or what its names say
  std::vector<std::string> overrides;  // key=value of the section model; they win
  Missing missing = Missing::kFail;
};

struct ImportedNetwork {
  std::unique_ptr<Network> network;
  ModelOptions options;
  std::vector<std::string> notes;  // sentences: what was recognised, passed over, filled in, resized or skipped
};

// Error says what is missing, unexpected and of another shape.
ImportedNetwork import_network(const WeightsSource& source, const ImportRequest& request);

// What a network's state dict holds, under the original's names. kWithSecondCopies adds those that the original stores
// twice, so that it can be loaded strictly.
enum class StateDict { kOnce, kWithSecondCopies };
struct NamedTensor {
  std::string name;
  at::Tensor values;  // contiguous, on the CPU
};
std::vector<NamedTensor> state_dict(const ImportedNetwork& imported, StateDict form);

}  // namespace vox
