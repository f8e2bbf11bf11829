// A user's own network: a TorchScript module (torch.jit.script or trace, then save) that takes an image
// [N, C, Z, Y, X] and gives logits of the same size, or a tuple or list of them, finest first. Its parameters and
// floating-point buffers become ours, under their own names, so that optimizer, averages, checkpoints and prediction
// treat them like any other's; integer buffers stay in the module. It computes in float32, without fused kernels.
#include <torch/script.h>
#include <torch/torch.h>

#include <filesystem>
#include <map>
#include <mutex>

#include "base/error.h"
#include "base/random.h"
#include "base/text.h"
#include "nets/network.h"
#include "nets/registry.h"

namespace vox {
namespace {

struct ModuleSlot {  // where the module keeps a tensor of ours
  torch::jit::Module owner;
  size_t index = 0;
  int parameter = 0;
};

// The interpreter puts a trace of the script before its reason; only the reason fits a sentence.
std::string reason_of(const std::exception& error) {
  std::string reason;
  for (const std::string& line : split(error.what(), '\n')) {
    const bool tells = line.find("Error: ") != std::string::npos;
    if (reason.empty() || tells) reason = line;
    if (tells) break;
  }
  return reason;
}

bool ends_with(const std::string& name, const char* leaf) {
  return name == leaf || name.ends_with(concat(".", leaf));
}

ParameterKind kind_of_buffer(const std::string& name) {
  if (ends_with(name, "running_mean")) return ParameterKind::kRunningMean;
  if (ends_with(name, "running_var")) return ParameterKind::kRunningVariance;
  return ends_with(name, "num_batches_tracked") ? ParameterKind::kBatchCount : ParameterKind::kConstant;
}

ParameterKind kind_of_parameter(const std::string& name, const at::Tensor& values) {
  if (!values.requires_grad()) return ParameterKind::kConstant;
  if (values.dim() > 1) return ParameterKind::kConvWeight;
  return ends_with(name, "bias") ? ParameterKind::kBias : ParameterKind::kOther;
}

torch::jit::Module load_module(const std::string& file) {
  VOX_CHECK(!file.empty(), "model.architecture is torchscript: name the module as model.file");
  VOX_CHECK(std::filesystem::is_regular_file(file), "model.file: there is no file ", file);
  try {
    return torch::jit::load(file, at::Device(at::kCPU));
  } catch (const std::exception& error) {
    throw Error(concat("model.file: ", file, " cannot be read as a TorchScript module: ", reason_of(error)));
  }
}

class TorchScriptNetwork : public Network {
 public:
  explicit TorchScriptNetwork(const ModelOptions& options);

  std::vector<at::Tensor> forward(const at::Tensor& image, const ForwardContext& context) override;
  Extent3 divisor() const override { return {1, 1, 1}; }
  LayerTable layer_table(const Extent3&, int64_t) override { return {}; }  // the module keeps its layers to itself

 private:
  void adopt(const torch::jit::Module& owner, const std::string& prefix);
  int add(const std::string& name, ParameterKind kind, const at::Tensor& values);
  void bind();
  void seed_dropout(const ForwardContext& context) const;
  std::vector<at::Tensor> run(const at::Tensor& image);
  void require_outputs(const std::vector<at::Tensor>& outputs, const at::Tensor& image) const;

  ModelOptions options_;
  torch::jit::Module module_;
  std::vector<ModuleSlot> slots_;
  std::map<const void*, int> adopted_;  // tensors by identity: a module may hold one in two places
  at::Device device_{at::kCPU};         // where the module's own tensors are
};

TorchScriptNetwork::TorchScriptNetwork(const ModelOptions& options)
    : options_(options), module_(load_module(options.file)) {
  VOX_CHECK(options.in_channels > 0 && options.out_channels > 0, "model.in_channels is ", options.in_channels,
            " and model.out_channels ", options.out_channels, "; both must be positive here");
  VOX_CHECK(!options.use_checkpoint,
            "model.use_checkpoint: a TorchScript module has no stages that could be computed "
            "twice; leave it out");
  in_channels_ = options.in_channels;
  for (const auto& named : module_.named_modules()) adopt(named.value, named.name.empty() ? "" : named.name + ".");
  VOX_CHECK(parameters_.count() > 0, "model.file: ", options.file,
            " has no parameters to train; was it frozen? Save what torch.jit.script gives");
}

void TorchScriptNetwork::adopt(const torch::jit::Module& owner, const std::string& prefix) {
  const auto type = owner.type();
  for (size_t i = 0; i < type->numAttributes(); ++i) {
    const bool is_parameter = type->is_parameter(i);
    if (!is_parameter && !type->is_buffer(i)) continue;
    const c10::IValue slot = owner._ivalue()->getSlot(i);
    if (!slot.isTensor()) continue;
    const at::Tensor values = slot.toTensor();
    const std::string name = prefix + type->getAttributeName(i);
    const ParameterKind kind = is_parameter ? kind_of_parameter(name, values) : kind_of_buffer(name);
    if (!values.is_floating_point() && kind != ParameterKind::kBatchCount) continue;
    const auto [known, is_new] = adopted_.emplace(values.unsafeGetTensorImpl(), 0);
    if (is_new) known->second = add(name, kind, values);
    slots_.push_back({owner, i, known->second});
  }
}

int TorchScriptNetwork::add(const std::string& name, ParameterKind kind, const at::Tensor& values) {
  VOX_CHECK(kind == ParameterKind::kBatchCount || values.scalar_type() == at::kFloat, "model.file: ", options_.file,
            ": ", name, " is ", at::toString(values.scalar_type()), "; save the module in float32");
  const int index = parameters_.add({name, kind, values.sizes().vec(), false, true});
  parameters_.load(name, values.detach());
  return index;
}

// The set makes its tensors anew when it changes device or layout.
void TorchScriptNetwork::bind() {
  const at::NoGradGuard no_grad;
  for (const ModuleSlot& slot : slots_) {
    const Parameter& parameter = parameters_.all()[static_cast<size_t>(slot.parameter)];
    const auto object = slot.owner._ivalue();
    at::Tensor held = object->getSlot(slot.index).toTensor();
    if (parameter.spec.kind == ParameterKind::kBatchCount) {
      held.copy_(parameter.value);  // an integer there, and the module counts by itself
    } else if (!held.is_same(parameter.value)) {
      object->setSlot(slot.index, parameter.value);
    }
  }
  if (device_ == parameters_.device()) return;
  device_ = parameters_.device();
  module_.to(device_);
}

// Torch's own generator draws the masks: begun anew for each batch, they do not depend on what ran before it.
void TorchScriptNetwork::seed_dropout(const ForwardContext& context) const {
  const Philox4 bits =
      philox(context.seed, static_cast<uint64_t>(context.first_sample), static_cast<uint64_t>(kDropoutStream) << 32);
  at::Generator generator = at::globalContext().defaultGenerator(device_);
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed((static_cast<uint64_t>(bits.v[0]) << 32) | bits.v[1]);
}

std::vector<at::Tensor> TorchScriptNetwork::run(const at::Tensor& image) {
  // Runs as written: an optimised graph rounds otherwise than the profiling runs before it, and a resumed run would
  // differ from one that never stopped.
  const torch::jit::GraphOptimizerEnabledGuard plainly(false);
  try {
    const c10::IValue result = module_.forward({image});
    if (result.isTensor()) return {result.toTensor()};
    if (result.isTensorList()) return result.toTensorVector();
    std::vector<at::Tensor> outputs;
    if (result.isTuple()) {
      for (const c10::IValue& one : result.toTupleRef().elements()) outputs.push_back(one.toTensor());
    } else if (result.isList()) {
      for (const c10::IValue& one : result.toListRef()) outputs.push_back(one.toTensor());
    }
    return outputs;
  } catch (const std::exception& error) {
    const std::string reason = reason_of(error);
    TORCH_CHECK_WITH(OutOfMemoryError, reason.find("out of memory") == std::string::npos, reason);
    throw Error(concat("model.file: ", options_.file, " fails on an image of ", image.sizes(), ": ", reason));
  }
}

void TorchScriptNetwork::require_outputs(const std::vector<at::Tensor>& outputs, const at::Tensor& image) const {
  VOX_CHECK(!outputs.empty(), "model.file: ", options_.file, " must give a tensor, or a tuple or list of tensors");
  std::vector<int64_t> expected = image.sizes().vec();
  expected[1] = options_.out_channels;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const at::IntArrayRef sizes = outputs[i].sizes();
    const bool coarser = i > 0 && sizes.size() == 5 && sizes[0] == expected[0] && sizes[1] == expected[1];
    VOX_CHECK(coarser || sizes == at::IntArrayRef(expected), "model.file: ", options_.file, ": output ", i, " is ",
              sizes, " for an image of ", image.sizes(), " where ", at::IntArrayRef(expected),
              " is expected; model.out_channels is ", options_.out_channels);
  }
}

std::vector<at::Tensor> TorchScriptNetwork::forward(const at::Tensor& image, const ForwardContext& context) {
  VOX_CHECK(image.dim() == 5 && image.size(1) == in_channels_, "the network takes [N, ", in_channels_,
            ", Z, Y, X] but the image is ", image.sizes());
  VOX_CHECK(parameters_.compute_type() == at::kFloat,
            "a TorchScript module computes in float32; set training.precision to 32 or tf32");
  bind();
  module_.train(context.training);
  if (context.training) seed_dropout(context);
  std::vector<at::Tensor> outputs = run(image.to(at::kFloat).contiguous(parameters_.memory_format()));
  require_outputs(outputs, image);
  const bool all = options_.deep_supervision && (context.training || context.all_heads);
  if (!all) outputs.resize(1);
  for (at::Tensor& output : outputs) output = output.to(at::kFloat);
  return outputs;
}

}  // namespace

NetworkEntry torchscript_entry() {
  return {"torchscript", "Your own network: the TorchScript module that model.file names",
          [](const ModelOptions& options, uint64_t) -> std::unique_ptr<Network> {
            return std::make_unique<TorchScriptNetwork>(options);
          },
          /*deep_supervision=*/true, /*dropout=*/false};
}

}  // namespace vox
