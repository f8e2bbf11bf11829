#include "train/checkpoint.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/torch.h>

#include <cstring>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "nets/weights.h"
#include "train/precision.h"
#include "train/state.h"

namespace vox {
namespace {

constexpr const char* kOtherwise = "name another --run, and its weights as model.weights";

at::ScalarType type_of(const std::string& dtype, const std::string& name) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong, at::kInt, at::kByte})
    if (safetensors_type(type) == dtype) return type;
  throw Error(concat("tensor ", name, " has the type ", dtype, ", which no checkpoint of Voxloom has"));
}

at::Tensor view_of(const TensorToStore& stored) {
  return at::from_blob(const_cast<std::byte*>(stored.bytes.data()), stored.shape,
                       at::TensorOptions().dtype(type_of(stored.dtype, stored.name)));
}

// Borrows the bytes of the file.
class TensorsByName {
 public:
  explicit TensorsByName(const CheckpointFile& file) : file_(file) {
    for (const TensorToStore& tensor : file.tensors) by_name_[tensor.name] = &tensor;
  }
  bool has(const std::string& name) const { return by_name_.contains(name); }
  bool has_any(const std::string& prefix) const {
    const auto first = by_name_.lower_bound(prefix);
    return first != by_name_.end() && first->first.starts_with(prefix);
  }

  void copy_to(at::Tensor target, const std::string& name) const {
    const auto found = by_name_.find(name);
    VOX_CHECK(found != by_name_.end(), file_.path.string(), " has no tensor ", name,
              ": it comes from another network or optimizer; ", kOtherwise);
    const TensorToStore& stored = *found->second;
    VOX_CHECK(target.sizes() == at::IntArrayRef(stored.shape), file_.path.string(), ": tensor ", name,
              " has the shape ", at::IntArrayRef(stored.shape), " where ", target.sizes(),
              " is expected; it comes from a network of other widths: ", kOtherwise);
    target.copy_(view_of(stored));
  }

 private:
  const CheckpointFile& file_;
  std::map<std::string, const TensorToStore*> by_name_;
};

// Brings tensors of a GPU to the host piece by piece, through two pieces of pinned memory that take turns, on a stream
// that waits for the snapshot alone. A plain copy would stand between two steps of the training until it is done.
class HostCopies {
 public:
  explicit HostCopies(const Snapshot& snapshot) {
    if (!snapshot.taken) return;
    // One for all checkpoints of the program, so that it is nobody else's; there is one GPU.
    static const c10::Stream side =
        c10::impl::VirtualGuardImpl(at::kCUDA).getStreamFromGlobalPool(snapshot.taken->device());
    stream_ = side;
    guard_.emplace(side);
    snapshot.taken->block(side);
    for (int i = 0; i < 2; ++i)
      stages_.push_back({at::empty({kStageBytes}, at::TensorOptions(at::kByte).pinned_memory(true)), at::kCUDA});
  }

  at::Tensor of(const at::Tensor& tensor) {
    if (!stream_ || !tensor.is_cuda()) return tensor.cpu().contiguous();
    at::Tensor dense;
    try {
      dense = tensor.contiguous();
    } catch (const c10::OutOfMemoryError&) {  // the GPU is full, or the choice of a kernel is bound to little memory
      return tensor.cpu().contiguous();
    }
    const at::Tensor from = dense.reshape({-1}).view(at::kByte);
    at::Tensor host = at::empty(dense.sizes(), dense.options().device(at::kCPU));
    auto* out = static_cast<std::byte*>(host.data_ptr());
    const int64_t bytes = from.numel();
    begin(from, 0);
    for (int64_t at = 0; at < bytes; at += kStageBytes) {
      begin(from, at + kStageBytes);
      finish(out + at, std::min(kStageBytes, bytes - at), at);
    }
    return host;
  }

 private:
  static constexpr int64_t kStageBytes = int64_t{16} << 20;
  struct Stage {
    at::Tensor memory;
    c10::Event there;
  };
  Stage& stage_at(int64_t byte) { return stages_[static_cast<size_t>(byte / kStageBytes % 2)]; }

  void begin(const at::Tensor& from, int64_t byte) {
    const int64_t count = std::min(kStageBytes, from.numel() - byte);
    if (count <= 0) return;
    Stage& stage = stage_at(byte);
    stage.memory.narrow(0, 0, count).copy_(from.narrow(0, byte, count), /*non_blocking=*/true);
    stage.there.record(*stream_);
  }

  void finish(std::byte* out, int64_t count, int64_t byte) {
    Stage& stage = stage_at(byte);
    stage.there.synchronize();
    std::memcpy(out, stage.memory.data_ptr(), static_cast<size_t>(count));
  }

  std::optional<c10::Stream> stream_;
  std::optional<c10::StreamGuard> guard_;
  std::vector<Stage> stages_;  // none on a CPU
};

bool is_scalar_state(const std::string& name) {
  return name.find('.') == std::string::npos;
}

}  // namespace

Snapshot take_snapshot(const ParameterSet& parameters, const Optimizer& optimizer) {
  const at::NoGradGuard no_grad;
  Snapshot snapshot;
  for (const Parameter& parameter : parameters.all())
    snapshot.tensors.emplace_back("model." + parameter.name(), parameter.master.detach().clone());
  for (const Parameter& parameter : parameters.all())
    if (parameter.ema.defined()) snapshot.tensors.emplace_back("ema." + parameter.name(), parameter.ema.clone());
  for (const auto& [name, tensor] : optimizer.state())
    (is_scalar_state(name) ? snapshot.scalars : snapshot.tensors).emplace_back("optimizer." + name, tensor.clone());
  if (const at::Device device = parameters.device(); device.is_cuda()) {
    snapshot.taken = std::make_shared<c10::Event>(at::kCUDA);
    snapshot.taken->record(c10::impl::VirtualGuardImpl(at::kCUDA).getStream(device));
  }
  return snapshot;
}

void write_snapshot(const CheckpointFolder& folder, Snapshot snapshot, Metadata metadata,
                    const CheckpointLinks& links) {
  const at::NoGradGuard no_grad;
  HostCopies copies(snapshot);
  std::vector<at::Tensor> on_host;  // keeps alive what `stored` borrows
  std::vector<TensorToStore> stored;
  for (auto& [name, tensor] : snapshot.tensors) {
    on_host.push_back(copies.of(tensor));
    tensor.reset();  // it has arrived: the GPU need not hold it while the disk works
    stored.push_back(tensor_to_store(name, on_host.back()));
  }
  for (const auto& [name, tensor] : snapshot.scalars)
    metadata[name] = shortest(copies.of(tensor).to(at::kDouble).item<double>());
  folder.write(metadata, stored, links);
}

namespace {

// Only 16-mixed scales its loss; where it is new, or is left, what the file says of it is another precision's.
bool is_of_other_precision(const std::string& name, const CheckpointFile& file, const Optimizer& optimizer) {
  if (name != "loss_scale" && name != "growth_tracker") return false;
  const Options before = options_of(file.metadata, file.path.string());
  return (parse_precision(before.training.precision) == Precision::k16Mixed) != optimizer.scales_loss();
}

}  // namespace

void restore(const CheckpointFile& file, ParameterSet& parameters, Optimizer& optimizer) {
  const at::NoGradGuard no_grad;
  const TensorsByName tensors(file);
  const bool averaged = tensors.has_any("ema.");  // else an average that is new starts from the weights
  for (Parameter& parameter : parameters.all()) {
    tensors.copy_to(parameter.master, "model." + parameter.name());
    if (parameter.ema.defined()) tensors.copy_to(parameter.ema, (averaged ? "ema." : "model.") + parameter.name());
  }
  parameters.refresh_shadows();
  for (auto& [name, tensor] : optimizer.state()) {
    if (!is_scalar_state(name)) {
      tensors.copy_to(tensor, "optimizer." + name);
      continue;
    }
    if (is_of_other_precision(name, file, optimizer)) continue;
    const auto value = file.metadata.find("optimizer." + name);
    VOX_CHECK(value != file.metadata.end(), file.path.string(), " does not say optimizer.", name);
    tensor.fill_(std::stod(value->second));
  }
}

std::vector<std::pair<std::string, at::Tensor>> tensors_under(const CheckpointFile& file, const std::string& prefix) {
  std::vector<std::pair<std::string, at::Tensor>> found;
  for (const TensorToStore& stored : file.tensors)
    if (stored.name.starts_with(prefix)) found.emplace_back(stored.name, view_of(stored).clone());
  return found;
}

void restore_weights(const CheckpointFile& file, ParameterSet& parameters, Weights which) {
  const at::NoGradGuard no_grad;
  const TensorsByName tensors(file);
  for (Parameter& parameter : parameters.all()) {
    const bool averaged = which == Weights::kAverageIfAny && tensors.has("ema." + parameter.name());
    tensors.copy_to(parameter.master, (averaged ? "ema." : "model.") + parameter.name());
  }
  parameters.refresh_shadows();
}

void export_weights(const ParameterSet& parameters, const std::string& file) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> on_host;
  std::vector<TensorToStore> stored;
  for (const Parameter& parameter : parameters.all()) {
    on_host.push_back(parameter.master.detach().cpu().contiguous());
    stored.push_back(tensor_to_store(parameter.name(), on_host.back()));
  }
  write_safetensors(file, stored, {});
}

}  // namespace vox
