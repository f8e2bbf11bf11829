// The weights of a network. Each parameter has a float32 master; what the forward pass reads is the master itself, or a
// half-precision shadow of it that the optimizer writes. Gradients are float32 in either case.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace vox {

namespace ops {
class GradientPlaces;
}

enum class ParameterKind {
  kConvWeight,
  kBias,
  kNormScale,
  kNormShift,
  kSlope,  // of a PReLU
  kOther,  // trained, none of these
  // Buffers: kept in checkpoints under the original's names, never trained.
  kRunningMean,
  kRunningVariance,
  kBatchCount,  // batches that the running statistics have seen; written as a 64-bit integer
  kConstant,
};
bool is_trained(ParameterKind kind);
bool is_running(ParameterKind kind);  // moves with the batches: mean, variance and count

struct ParameterSpec {
  std::string name;
  ParameterKind kind = ParameterKind::kConvWeight;
  std::vector<int64_t> shape;
  bool cancelled = false;       // a bias directly before an instance norm: no gradient, no decay, never moves
  bool full_precision = false;  // output layers stay float32 in mixed precision; norms always do
};

struct Parameter {
  ParameterSpec spec;
  at::Tensor master;  // float32
  // What forward() reads: the master, or its half-precision shadow (an autograd leaf); of a running statistic a copy
  // that forward() moves and settle_statistics() makes the master's, or takes back.
  at::Tensor value;
  at::Tensor grad;  // float32, laid out as the master; undefined until a backward pass reached it
  at::Tensor ema;   // float32; undefined while the average is off
  const std::string& name() const { return spec.name; }
};

class ParameterSet {
 public:
  // Returns the index by which layers refer to the parameter.
  int add(const ParameterSpec& spec);

  std::vector<Parameter>& all() { return parameters_; }
  const std::vector<Parameter>& all() const { return parameters_; }
  const at::Tensor& operator[](int index) const { return parameters_[static_cast<size_t>(index)].value; }
  Parameter* find(const std::string& name);
  int64_t count() const;  // trained numbers, not tensors
  bool has_running_statistics() const;

  // float32, bfloat16 or float16: what convolutions compute in. Makes or drops the shadows.
  void set_compute_type(at::ScalarType type);
  at::ScalarType compute_type() const { return compute_type_; }
  void to(const at::Device& device);
  at::Device device() const;
  // Convolution weights (and their gradients and averages) in the layout of channels-last activations, or back.
  void to(at::MemoryFormat format);
  at::MemoryFormat memory_format() const { return format_; }

  // After each backward pass: adds what it left into the float32 gradients.
  void collect_grads();
  // On a GPU: where the gradient of a parameter always lies, float32 and laid out as the master; part of one
  // allocation. What it holds counts only while Parameter::grad is this tensor.
  const at::Tensor& grad_buffer(int index);
  void zero_grads();  // before a step

  // After a step: running statistics take what its forward passes made of them, or go back where `bad` (a number on the
  // device) is not zero. Nothing waits.
  void settle_statistics(const at::Tensor& bad);

  // Writes the shadows from the masters: after masters were loaded or exchanged by hand.
  void refresh_shadows();
  void start_ema();  // averages begin as copies of the masters
  // Copies into master. Error names the parameter and both shapes.
  void load(const std::string& name, const at::Tensor& values);

 private:
  void make_leaf(Parameter& parameter);
  void make_grad_buffers();
  void collect_into_buffers();
  void offer_buffers();

  std::vector<Parameter> parameters_;
  std::map<std::string, int> index_;
  std::vector<at::Tensor> grad_buffers_;  // of each parameter; empty until one is needed
  std::shared_ptr<ops::GradientPlaces> places_;
  at::ScalarType compute_type_ = at::kFloat;
  at::MemoryFormat format_ = at::MemoryFormat::Contiguous;
};

}  // namespace vox
