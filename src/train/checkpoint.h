// The tensors of a run between the device and a checkpoint file.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nets/parameters.h"
#include "train/checkpoint_folder.h"
#include "train/optimizer.h"

namespace c10 {
struct Event;
}

namespace vox {

struct Snapshot {
  std::vector<std::pair<std::string, at::Tensor>> tensors;  // copies, still on their device
  std::vector<std::pair<std::string, at::Tensor>> scalars;  // go into the metadata as optimizer.<name>
  std::shared_ptr<c10::Event> taken;                        // on a GPU: when the copies are there
};

// Copies on the device and returns; nothing waits.
Snapshot take_snapshot(const ParameterSet& parameters, const Optimizer& optimizer);

// Fetches and writes; for the background thread. A GPU goes on with its work meanwhile: the copies leave it on a stream
// of their own, and their memory is free there as soon as they have left, unless the caller kept the snapshot.
void write_snapshot(const CheckpointFolder& folder, Snapshot snapshot, Metadata metadata, const CheckpointLinks& links);

// Error names what is missing or has another shape.
void restore(const CheckpointFile& file, ParameterSet& parameters, Optimizer& optimizer);

// Copies of the tensors whose names start so.
std::vector<std::pair<std::string, at::Tensor>> tensors_under(const CheckpointFile& file, const std::string& prefix);

// Weights alone, for prediction: the average where the checkpoint has one.
enum class Weights { kAverageIfAny, kRaw };
void restore_weights(const CheckpointFile& file, ParameterSet& parameters, Weights which);

// The masters as FILE (safetensors): where an exported run starts from.
void export_weights(const ParameterSet& parameters, const std::string& file);

}  // namespace vox
