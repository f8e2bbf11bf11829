// Which terms a step has, and what they ask of it.
#include <ATen/core/Tensor.h>

#include <algorithm>

#include "losses/loss_set.h"

namespace vox {

bool LossSet::Impl::begins(const Term& term, int64_t step) const {
  return step >= term.options.start_step && (step - term.options.start_step) % term.options.every == 0;
}

bool LossSet::due(size_t term, int64_t step, Part part) const {
  const Impl::Term& one = impl_->terms[term];
  const int64_t delay = one.loss->delay();
  return (delay > 0) == (part == Part::kLate) && impl_->begins(one, step - delay);
}

std::vector<int64_t> LossSet::fullest_steps(int64_t end) const {
  constexpr int64_t kTried = 1000;  // turns of a term until it meets all others
  const size_t count = impl_->terms.size();
  int64_t latest = 0;
  for (const Impl::Term& term : impl_->terms)
    if (term.options.start_step < end) latest = std::max(latest, term.options.start_step);
  const auto due_at = [&](int64_t step) {
    int64_t terms = 0;
    for (size_t t = 0; t < count; ++t) terms += due(t, step);
    return terms;
  };
  std::vector<int64_t> steps;
  for (size_t t = 0; t < count; ++t) {
    const int64_t start = impl_->terms[t].options.start_step, every = impl_->terms[t].options.every;
    const bool seen = std::any_of(steps.begin(), steps.end(), [&](int64_t step) { return due(t, step); });
    if (seen || delay(t) > 0 || start >= end) continue;
    const int64_t last = start + (std::min(end - 1, latest + kTried * every) - start) / every * every;
    int64_t fullest = last;
    for (int64_t step = last; step >= std::max(start, last - kTried * every); step -= every)
      if (due_at(step) >= due_at(fullest)) fullest = step;
    steps.push_back(fullest);
  }
  return steps.empty() ? std::vector<int64_t>{latest} : steps;
}

bool LossSet::reads_back(int64_t step) const {
  bool any = begins(step);
  for (size_t t = 0; t < impl_->terms.size(); ++t)
    any = any ||
          (due(t, step) && (impl_->terms[t].loss->reads_back() || !impl_->views[impl_->terms[t].view].chosen.empty()));
  return any;
}

bool LossSet::reaches(size_t head, size_t heads, int64_t step, Part part) const {
  const std::vector<double> weights = impl_->head_weights(heads);
  bool any_due = false, reached = false;
  for (size_t t = 0; t < impl_->terms.size(); ++t) {
    any_due = any_due || due(t, step, part);
    reached = reached || (due(t, step, part) && impl_->head_weight(impl_->terms[t], weights, head) != 0);
  }
  return any_due ? reached : head == 0;
}

}  // namespace vox
