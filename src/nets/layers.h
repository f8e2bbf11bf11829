// The vocabulary that networks are written in. A layer is a handful of indices into the network's parameters; adding
// one names and initialises its parameters as the original does, running one gives a Feature.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "nets/network.h"
#include "ops/feature.h"

namespace vox {

struct NormSpec {
  ops::NormKind kind = ops::NormKind::kInstance;
  bool affine = true;
  int64_t groups = 8;  // of a group norm
  double epsilon = 1e-5;
  double momentum = 0.1;       // of a batch norm
  bool counts_batches = true;  // of a batch norm: whether the original stores how many it has seen
};

struct ActivationSpec {
  ops::Activation kind = ops::Activation::kLeakyRelu;
  double slope = 0.01;  // of the leaky ReLU; where a PReLU starts
};

struct DropoutSpec {
  double rate = 0;
  bool elements = false, before_norm = false;  // ops/epilogue.h
};

struct Conv {
  std::string name;
  int weight = -1, bias = -1;
  ops::ConvGeometry geometry;
  bool transposed = false;
};

struct Norm {
  NormSpec spec{.kind = ops::NormKind::kNone};
  int scale = -1, shift = -1, mean = -1, variance = -1;
};

struct Act {
  ActivationSpec spec{.kind = ops::Activation::kNone};
  int slope = -1;
};

struct Block {  // a convolution and what follows it
  Conv conv;
  Norm norm;
  Act act;
  DropoutSpec dropout;
  int layer = 0;  // its number, for dropout
};

struct ParameterRange {  // those added between two moments: what a checkpointed stage reads
  int first = 0, last = 0;
};

// How fresh weights are drawn.
enum class WeightInit {
  kKaiming,         // normal, fan in, leaky ReLU 0.01, biases 0: nnU-Net, DynUNet
  kKaimingFanOut,   // normal, fan out, ReLU: RSUNet
  kKaimingUniform,  // uniform, fan in, ReLU, biases 0: C3D
  kTorch,           // uniform, weights and biases within 1 / sqrt(fan in): what torch's layers do
  kGlorot,          // uniform, sqrt(6 / (fan in + fan out)), biases 0: Keras
};

class LayerNetwork : public Network {
 public:
  std::string norm() const override;
  std::string activation() const override;

 protected:
  LayerNetwork(const ModelOptions& options, uint64_t seed, WeightInit init);

  enum class Bias { kNone, kPlain, kCancelled };  // cancelled: directly before an instance norm
  struct ConvSpec {
    int64_t in = 1, out = 1;
    ops::ConvGeometry geometry{};
    Bias bias = Bias::kPlain;
    bool transposed = false;
    bool head = false;                 // an output layer: float32 in mixed precision
    std::optional<WeightInit> init{};  // unset: the network's
  };
  Conv add_conv(const std::string& name, const ConvSpec& spec);  // name.weight, name.bias
  // name.weight, name.bias, name.running_mean, name.running_var, name.num_batches_tracked, as far as the kind has them.
  Norm add_norm(const std::string& name, int64_t channels, const NormSpec& spec);
  Act add_activation(const std::string& name, const ActivationSpec& spec);  // name.weight for a PReLU
  int add_parameter(const ParameterSpec& spec, double value);               // filled with one number
  int next_layer() { return layers_++; }

  ops::Feature run(const Conv& conv, const ops::Feature& input, const ops::Epilogue& epilogue = {}) const;
  ops::Feature run(const Block& block, const ops::Feature& input, const ForwardContext& context,
                   const ops::Feature* residual = nullptr) const;
  ops::Epilogue epilogue(const Norm& norm, const Act& act, const ForwardContext& context) const;
  ops::Epilogue epilogue(const Block& block, const ForwardContext& context) const;

  // Runs `stage` over `inputs`, through activation checkpointing where the options ask for it. `stage` may read the
  // parameters of `range` and nothing else, and is kept until the backward pass: it captures the context by value.
  using StageFunction = std::function<ops::Feature(const std::vector<ops::Feature>&)>;
  ops::Feature run_stage(const StageFunction& stage, const std::vector<ops::Feature>& inputs,
                         const ParameterRange& range, const ForwardContext& context) const;

  // The image in the type and layout that the parameters compute in; Error where its channels are not the network's.
  ops::Feature enter(const at::Tensor& image) const;
  // Everything a network is asked for besides its best guess: in training, or where all outputs are wanted.
  bool wants_all_heads(const ForwardContext& context) const {
    return options_.deep_supervision && (context.training || context.all_heads);
  }
  int mark() const { return static_cast<int>(parameters_.all().size()); }  // begin and end of a ParameterRange

  ModelOptions options_;

 private:
  struct Fans {
    int64_t in = 1, out = 1;
  };
  void draw(int parameter, const Fans& fans, WeightInit init);
  ops::Feature run_or_checkpoint(const StageFunction& stage, const std::vector<ops::Feature>& inputs,
                                 const ParameterRange& range, const ForwardContext& context) const;

  uint64_t seed_;
  WeightInit init_;
  int layers_ = 0;
  std::optional<ops::NormKind> first_norm_;  // stand for all
  std::optional<ActivationSpec> first_activation_;
};

// `name` as options spell it; auto is `own`.
NormSpec norm_spec(const ModelOptions& options, const NormSpec& own);
ActivationSpec activation_spec(const ModelOptions& options, const ActivationSpec& own);

}  // namespace vox
