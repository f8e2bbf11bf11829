#include "ops/loss_ops.h"

#include <torch/custom_class.h>
#include <torch/torch.h>

#include "base/error.h"
#include "ops/device.h"

namespace vox::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct HeldLoss : torch::CustomClassHolder {
  explicit HeldLoss(const FusedLoss& given) : loss(given) {}
  FusedLoss loss;
};

cuda::Element element_of(at::ScalarType type) {
  switch (type) {
    case at::kByte:
    case at::kBool:
      return cuda::Element::kUInt8;
    case at::kChar:
      return cuda::Element::kInt8;
    case at::kShort:
      return cuda::Element::kInt16;
    case at::kInt:
      return cuda::Element::kInt32;
    case at::kLong:
      return cuda::Element::kInt64;
    default:
      VOX_ASSERT(type == at::kFloat);
      return cuda::Element::kFloat32;
  }
}

void place_volume(const at::Tensor& tensor, cuda::LossVolume& volume) {
  if (!tensor.defined()) return;
  VOX_ASSERT(tensor.is_contiguous());
  volume.data = tensor.const_data_ptr();
  volume.type = element_of(tensor.scalar_type());
}

cuda::LossProblem problem_of(const FusedLoss& loss, const variable_list& logits) {
  const auto size = [](const at::Tensor& tensor, int64_t axis) { return static_cast<int>(tensor.size(axis)); };
  cuda::LossProblem problem = loss.problem;
  problem.samples = logits.front().size(0);
  problem.channels = size(logits.front(), 1);
  problem.z = size(loss.target, 2), problem.y = size(loss.target, 3), problem.x = size(loss.target, 4);
  place_volume(loss.target, problem.target);
  place_volume(loss.label, problem.label);
  place_volume(loss.mask, problem.mask);
  problem.scales = static_cast<int>(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    cuda::LossScale& scale = problem.scale[i];
    scale.logits = logits[i].const_data_ptr<float>();
    scale.z = size(logits[i], 2), scale.y = size(logits[i], 3), scale.x = size(logits[i], 4);
  }
  return problem;
}

struct FusedLosses : torch::autograd::Function<FusedLosses> {
  static variable_list forward(AutogradContext* context, at::TensorList given,  // a vector is no tensor to autograd
                               const c10::intrusive_ptr<HeldLoss>& held) {
    variable_list logits;
    for (const at::Tensor& one : given) logits.push_back(one.contiguous());
    const cuda::LossProblem problem = problem_of(held->loss, logits);
    const at::TensorOptions options = logits.front().options();
    const at::Tensor total = at::empty({}, options), terms = at::empty({cuda::kLossTerms}, options);
    const at::Tensor workspace = at::empty({cuda::loss_workspace(problem)}, options.dtype(at::kByte));
    cuda::loss_forward(problem, {total.data_ptr<float>(), terms.data_ptr<float>()}, workspace.data_ptr(),
                       current_stream(total));
    variable_list saved = logits;
    saved.push_back(workspace);
    context->save_for_backward(saved);
    context->saved_data["loss"] = c10::IValue::make_capsule(held);
    context->mark_non_differentiable({terms});
    return {total, terms};
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    variable_list logits = context->get_saved_variables();
    const at::Tensor workspace = logits.back(), upstream = grads[0].to(at::kFloat).contiguous();
    logits.pop_back();
    const auto held = context->saved_data["loss"].toCapsule();
    cuda::LossProblem problem = problem_of(static_cast<const HeldLoss&>(*held).loss, logits);
    variable_list result;
    for (size_t i = 0; i < logits.size(); ++i) {
      result.push_back(at::empty_like(logits[i]));
      problem.scale[i].dlogits = result.back().data_ptr<float>();
    }
    cuda::loss_backward(problem, upstream.const_data_ptr<float>(), workspace.const_data_ptr(),
                        current_stream(workspace));
    result.emplace_back();  // of what is no tensor
    return result;
  }
};

}  // namespace

FusedLossValues fused_losses(const std::vector<at::Tensor>& logits, const FusedLoss& loss) {
  FusedLoss own = loss;
  for (at::Tensor* tensor : {&own.target, &own.label, &own.mask})
    if (tensor->defined()) *tensor = tensor->contiguous();
  const variable_list values = FusedLosses::apply(at::TensorList(logits), c10::make_intrusive<HeldLoss>(own));
  return {values[0], values[1]};
}

}  // namespace vox::ops
