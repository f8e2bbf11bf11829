// A network: parameters and a forward pass over Features.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/shape.h"
#include "config/options.h"
#include "nets/parameters.h"
#include "ops/trace.h"

namespace vox {

struct ForwardContext {
  bool training = false;
  uint64_t seed = 0;         // dropout masks depend on seed, sample number, layer and element alone
  int64_t first_sample = 0;  // number of the first sample of the batch
  bool all_heads = false;    // coarser outputs too where the network has them, also outside training
};

struct LayerTable {  // of one batch
  std::vector<ops::LayerRecord> layers;
  int64_t kept_elements = 0;        // of activations that a backward pass keeps
  int64_t kept_fused_elements = 0;  // the same on the fused path of a GPU
  int64_t moved_elements = 0;       // read and written by what is no convolution, forward and backward
  double gmac() const;
};

class Network {
 public:
  virtual ~Network() = default;

  // Logits in float32 of an image [N, C, Z, Y, X] of any floating type: the full resolution first; coarser heads follow
  // when training with deep supervision.
  virtual std::vector<at::Tensor> forward(const at::Tensor& image, const ForwardContext& context = {}) = 0;
  // Spatial sizes must be multiples of this.
  virtual Extent3 divisor() const = 0;
  // The layers that a batch of `samples` patches runs through; nothing is computed. Empty where the network cannot
  // tell.
  virtual LayerTable layer_table(const Extent3& patch, int64_t samples = 1);
  // 1e9 multiply-adds of one forward pass of one sample.
  double gmac(const Extent3& patch) { return layer_table(patch).gmac(); }

  virtual ParameterSet& parameters() { return parameters_; }
  virtual const ParameterSet& parameters() const { return parameters_; }
  // Error names the nearest sizes that fit. A network that pads as its original does takes any.
  virtual void require_divisible(const Extent3& patch) const;
  Extent3 round_up(const Extent3& patch) const;
  // What follows its convolutions, as model.norm and model.activation spell it, a leaky ReLU with its slope. Empty
  // where those options say nothing to the network.
  virtual std::string norm() const { return ""; }
  virtual std::string activation() const { return ""; }

 protected:
  ParameterSet parameters_;
  int64_t in_channels_ = 1;
};

// The network that options.architecture names, with fresh weights drawn from (seed, parameter, element).
std::unique_ptr<Network> make_network(const ModelOptions& options, uint64_t seed);

}  // namespace vox
