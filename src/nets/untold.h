// What a network computes and its weights do not tell: activations without tensors, norms that look alike, strides,
// what is done to the outputs. Whoever takes weights from elsewhere says what he assumed of it.
#pragma once

#include <string>
#include <vector>

#include "nets/recognise.h"
#include "nets/weights.h"

namespace vox {

bool says(const std::vector<std::string>& options, const std::string& key);  // one of them is key=value

// Error where there is nothing to assume: what the overrides must say, and do not. `path` is the file of the weights.
void require_told(const std::string& path, const Recognised& found, const std::vector<std::string>& overrides);
// What was assumed of a network that was recognised, and how to say otherwise. Empty where nothing was.
std::string assumed_note(const Recognised& found, const std::vector<std::string>& overrides,
                         const ModelOptions& options, const Network& network);

// Where the network that wrote a file of weights computes something else than ours though all tensors fit: what is
// there and what is here. Empty where the file does not say, or is of another architecture.
std::string other_function_note(const Metadata& metadata, const ModelOptions& options, const std::string& path);

// What our network does and its state dict cannot carry into the original: a sentence each.
std::vector<std::string> lost_in_export(const ModelOptions& options);

}  // namespace vox
