#include "losses/fused.h"

#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"
#include "ops/loss_ops.h"

namespace vox {
namespace {

using cuda::LossGroup;
using Kind = FusedTerm::Kind;

bool has_type(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kByte:
    case at::kBool:
    case at::kChar:
    case at::kShort:
    case at::kInt:
    case at::kLong:
    case at::kFloat:
      return true;
    default:
      return false;
  }
}

bool fits(const at::Tensor& volume, const at::Tensor& target, int64_t channels) {
  return !volume.defined() || (has_type(volume) && volume.is_cuda() && volume.size(1) == channels &&
                               volume.size(0) == target.size(0) && volume.sizes().slice(2) == target.sizes().slice(2));
}

// Whether the kernels can take these tensors at all.
bool can_be_fused(const FusedRequest& request) {
  if (request.terms.empty() || request.logits.empty()) return false;
  const at::Tensor& target = request.target;
  const int64_t channels = request.logits.front().size(1);
  if (channels > cuda::kMaxLossClasses || request.logits.size() > size_t{cuda::kMaxLossScales} ||
      request.class_values.size() > size_t{cuda::kMaxLossClasses} || target.dim() != 5)
    return false;
  for (const at::Tensor& logits : request.logits) {
    if (!logits.is_cuda() || logits.scalar_type() == at::kDouble || logits.numel() == 0 ||
        logits.size(0) != target.size(0))
      return false;
    for (int64_t axis = 2; axis < 5; ++axis)
      if (logits.size(axis) > target.size(axis)) return false;
  }
  return fits(target, target, request.values ? channels : 1) && fits(request.label, target, 1) &&
         fits(request.mask, target, 1);
}

struct Place {  // where a term stands in the kernels
  LossGroup group;
  size_t slot;
};

std::optional<Place> place_of(const FusedTerm& term, const FusedRequest& request) {
  const bool one = request.logits.front().size(1) == 1, classes = !request.values && !one;
  switch (term.kind) {
    case Kind::kRegion:
      if (one) return Place{LossGroup::kSigmoid, 0};
      return classes ? std::optional(Place{LossGroup::kSoftmax, 0}) : std::nullopt;
    case Kind::kBce:
      return Place{LossGroup::kSigmoid, 1};
    case Kind::kCrossEntropy:
      return classes ? std::optional(Place{LossGroup::kSoftmax, 1}) : std::nullopt;
    case Kind::kMae:
      return Place{LossGroup::kValues, 0};
    case Kind::kMaskedMae:  // without a mask the loss itself says what is wrong
      if (!request.label.defined() && !request.mask.defined()) return std::nullopt;
      return Place{LossGroup::kValues, 1};
    case Kind::kMse:
      return Place{LossGroup::kValues, 2};
  }
  return std::nullopt;
}

using Slots = std::array<const FusedRequest::Term*, cuda::kLossTerms>;

void describe_term(const FusedTerm& term, cuda::LossProblem& problem) {
  const auto number = [](double value) { return static_cast<float>(value); };
  for (size_t c = 0; c < term.class_weights.size(); ++c) problem.class_weight[c] = number(term.class_weights[c]);
  if (term.kind == Kind::kBce) problem.pos_weight = number(term.pos_weight);
  if (term.kind == Kind::kMaskedMae) problem.target_weight = number(term.target_weight);
  if (term.kind != Kind::kRegion) return;
  problem.batch = term.batch;
  problem.background = term.background;
  problem.smooth = number(term.smooth);
  problem.alpha = number(term.alpha);
  problem.beta = number(term.beta);
}

cuda::LossProblem describe(const FusedRequest& request, LossGroup group, const Slots& slots) {
  cuda::LossProblem problem;
  problem.group = group;
  const bool one = request.logits.front().size(1) == 1;
  problem.form = request.values ? cuda::TargetForm::kValue
                 : one          ? cuda::TargetForm::kAboveZero
                                : cuda::TargetForm::kClass;
  problem.ignored = static_cast<float>(request.ignored);
  problem.values = static_cast<int>(request.class_values.size());
  for (size_t i = 0; i < request.class_values.size(); ++i)
    problem.value[i] = static_cast<float>(request.class_values[i]);
  std::fill(std::begin(problem.class_weight), std::end(problem.class_weight), 1.0f);
  for (const FusedRequest::Term* term : slots)
    if (term) describe_term(term->form, problem);
  return problem;
}

void compute_group(const FusedRequest& request, LossGroup group, const Slots& slots, FusedResult& result) {
  ops::FusedLoss loss{describe(request, group, slots), request.target, request.label, request.mask};
  std::vector<at::Tensor> logits;
  for (size_t head = 0; head < request.logits.size(); ++head) {
    cuda::LossScale& scale = loss.problem.scale[logits.size()];
    bool wanted = false;
    for (size_t slot = 0; slot < slots.size(); ++slot) {
      const double weight = slots[slot] ? slots[slot]->head_weights[head] : 0;
      scale.value_weight[slot] = static_cast<float>(weight);
      scale.total_weight[slot] = slots[slot] ? static_cast<float>(weight * slots[slot]->weight) : 0;
      wanted |= weight != 0;
    }
    if (wanted) logits.push_back(request.logits[head].to(at::kFloat));
  }
  if (logits.empty()) return;
  if constexpr (cuda::kCompiledIn) {
    const ops::FusedLossValues values = ops::fused_losses(logits, loss);
    result.total = result.total.defined() ? result.total + values.total : values.total;
    for (size_t slot = 0; slot < slots.size(); ++slot)
      if (slots[slot])
        result.values.emplace_back(slots[slot]->index, values.terms.select(0, static_cast<int64_t>(slot)));
  }
}

}  // namespace

std::vector<size_t> drop_unweighed_heads(FusedRequest& request, size_t heads) {
  std::vector<size_t> kept;
  for (size_t head = 0; head < heads; ++head) {
    const bool weighed = std::any_of(request.terms.begin(), request.terms.end(),
                                     [&](const FusedRequest::Term& term) { return term.head_weights[head] != 0; });
    if (weighed) kept.push_back(head);
  }
  for (FusedRequest::Term& term : request.terms) {
    std::vector<double> weights;
    for (const size_t head : kept) weights.push_back(term.head_weights[head]);
    term.head_weights = std::move(weights);
  }
  return kept;
}

FusedResult compute_fused(const FusedRequest& request) {
  FusedResult result;
  if (!cuda::kCompiledIn || !can_be_fused(request)) return result;
  for (const LossGroup group : {LossGroup::kSigmoid, LossGroup::kSoftmax, LossGroup::kValues}) {
    Slots slots{};
    for (const FusedRequest::Term& term : request.terms) {
      const std::optional<Place> place = place_of(term.form, request);
      if (place && place->group == group && !slots[place->slot]) slots[place->slot] = &term;
    }
    if (std::any_of(slots.begin(), slots.end(), [](const auto* term) { return term != nullptr; }))
      compute_group(request, group, slots, result);
  }
  return result;
}

}  // namespace vox
