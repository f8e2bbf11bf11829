// Terms with a delay: begun with the logits of one step, applied to those of a later one.
#include <torch/torch.h>

#include <algorithm>

#include "base/error.h"
#include "base/span.h"
#include "losses/loss_set.h"

namespace vox {

std::unique_ptr<Findings> Loss::look_at(const LossInput&) const {
  throw Error("internal error: a term without a delay does not look ahead", Fault::kBug);
}

std::unique_ptr<Findings> Loss::restored(const std::vector<at::Tensor>&) const {
  throw Error("internal error: a term without a delay finds nothing that a checkpoint could hold", Fault::kBug);
}

std::optional<double> LossSet::take_wait(size_t term) const {
  return impl_->terms[term].loss->take_wait();
}

int64_t LossSet::delay(size_t term) const {
  return impl_->terms[term].loss->delay();
}

bool LossSet::begins(int64_t step) const {
  return std::any_of(impl_->terms.begin(), impl_->terms.end(),
                     [&](const Impl::Term& term) { return term.loss->delay() > 0 && impl_->begins(term, step); });
}

int64_t LossSet::first_unfinished(int64_t step) const {
  int64_t first = step;
  for (const Impl::Term& term : impl_->terms)
    for (int64_t ago = 1; ago <= term.loss->delay(); ++ago)
      if (impl_->begins(term, step - ago)) first = std::min(first, step - ago);
  return first;
}

LateTerm LossSet::restored(size_t term, size_t head, const std::vector<at::Tensor>& state) const {
  return {term, head, impl_->terms[term].loss->restored(state)};
}

std::vector<LateTerm> LossSet::begin(const std::vector<at::Tensor>& logits, const Targets& targets,
                                     int64_t step) const {
  const at::NoGradGuard no_grad;
  const std::vector<double> weights = impl_->head_weights(logits.size());
  const at::Tensor valid = impl_->valid_voxels(targets);
  std::vector<LateTerm> begun;
  for (size_t t = 0; t < impl_->terms.size(); ++t) {
    const Impl::Term& term = impl_->terms[t];
    if (term.loss->delay() == 0 || !impl_->begins(term, step)) continue;
    const Span span(term.span);
    for (size_t head = 0; head < logits.size(); ++head) {
      if (impl_->head_weight(term, weights, head) == 0) continue;
      const LossInput input = impl_->input_for(logits[head], targets, valid, impl_->views[term.view]);
      begun.push_back({t, head, term.loss->look_at(input)});
    }
  }
  return begun;
}

LossResult LossSet::apply(std::vector<LateTerm>& terms, const std::vector<at::Tensor>& logits, const Targets& targets,
                          int64_t step) const {
  const std::vector<double> weights = impl_->head_weights(logits.size());
  const at::Tensor valid = impl_->valid_voxels(targets);
  LossResult result;
  for (const Impl::Term& term : impl_->terms) result.terms.emplace_back(term.label, std::nullopt);
  const Impl::Laps laps(impl_->clock);
  laps.take();
  for (LateTerm& late : terms) {
    if (!due(late.term, step, Part::kLate)) continue;
    if (late.head >= logits.size()) continue;  // the run goes on, by force, without deep supervision
    Impl::Term& term = impl_->terms[late.term];
    const Span span(term.span);
    const Clock::time_point begin = Clock::now();
    const LossInput input = impl_->input_for(logits[late.head], targets, valid, impl_->views[term.view]);
    const at::Tensor value = late.findings->value(input) * impl_->head_weight(term, weights, late.head);
    std::optional<at::Tensor>& sum = result.terms[late.term].second;
    sum = sum ? *sum + value.detach() : value.detach();
    laps.take({late.term});
    if (value.is_cpu()) term.seconds = term.seconds.value_or(0) + seconds_since(begin);
    const at::Tensor weighted = value * (term.options.weight * static_cast<double>(term.options.every));
    result.total = result.total.defined() ? result.total + weighted : weighted;
  }
  std::erase_if(terms, [&](const LateTerm& late) { return due(late.term, step, Part::kLate); });
  if (!result.total.defined()) result.total = logits[0].to(at::kFloat).sum() * 0;
  return result;
}

}  // namespace vox
