// What the terms of a recipe are compared with: the label, its classes, and what is made from it.
#include <torch/torch.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "losses/loss_set.h"

namespace vox {
namespace {

TargetOptions target_called(const std::string& name, const LossOptions& options) {
  const auto described = std::find_if(options.targets.begin(), options.targets.end(),
                                      [&](const TargetOptions& target) { return target.name == name; });
  return described != options.targets.end() ? *described : TargetOptions{name, name, {}};
}

std::string target_name(const LossTerm& term) {  // empty: the label
  const std::string name = term.target.empty() ? find_loss(term.name).default_target : term.target;
  return name == "label" ? "" : name;
}

void require_channel(int64_t largest_class, int64_t channels) {
  VOX_CHECK(
      largest_class < channels, "the label has class ", largest_class, " but the network has ", channels,
      " channels for it; name its values in data.labels, whose places are the classes, set model.out_channels to ",
      largest_class + 1, ", or data.ignore_label to the value");
}

}  // namespace

std::vector<TargetOptions> targets_of(const LossOptions& options) {
  std::vector<TargetOptions> wanted;
  for (const LossTerm& term : options.terms) {
    const std::string name = target_name(term);
    const auto same = [&](const TargetOptions& target) { return target.name == name; };
    if (name.empty() || std::any_of(wanted.begin(), wanted.end(), same)) continue;
    wanted.push_back(target_called(name, options));
  }
  return wanted;
}

void LossSet::Impl::set_class_values(const DataOptions& data) {
  std::vector<double> values;
  for (const int64_t value : data.labels) {
    if (value != data.ignore_label) values.push_back(static_cast<double>(value));
  }
  std::sort(values.begin(), values.end());
  std::vector<double> plain(values.size());
  std::iota(plain.begin(), plain.end(), 0.0);
  if (values != plain) class_values = Constants(values);
}

at::Tensor LossSet::Impl::classes_of(const at::Tensor& label, const at::Tensor& valid, int64_t channels) const {
  at::Tensor classes = label.to(at::kLong);
  if (valid.defined()) classes = at::where(valid, classes, at::zeros_like(classes));
  if (!class_values.empty()) classes = at::bucketize(classes, class_values.like(classes));
  if (label.is_cpu() && classes.numel() > 0) require_channel(classes.max().item<int64_t>(), channels);  // no wait here
  return classes.clamp(0, channels - 1);
}

void LossSet::require_channels(const std::vector<int64_t>& label_values) const {
  const std::vector<double>& known = impl_->class_values.values();
  int64_t largest = 0;
  for (const int64_t value : label_values) {
    if (value == impl_->ignore_label) continue;
    const auto place = std::lower_bound(known.begin(), known.end(), static_cast<double>(value));
    largest = std::max(largest, known.empty() ? value : place - known.begin());
  }
  for (const Impl::View& view : impl_->views)
    if (!impl_->regression && view.target.empty() && view.channels() > 1) require_channel(largest, view.channels());
}

LossSet::Compared LossSet::compared_with_label(const at::Tensor& logits) const {
  const Impl::Term* const term = impl_->label_term();
  return term ? Compared{impl_->views[term->view].of(logits), impl_->is_foreground(*term)} : Compared{};
}

LossSet::LabelChannels LossSet::label_channels() const {
  const Impl::Term* const term = impl_->label_term();
  return term ? LabelChannels{impl_->views[term->view].numbers(), impl_->is_foreground(*term)} : LabelChannels{};
}

std::vector<int64_t> LossSet::value_channels() const {
  std::vector<int64_t> channels;
  for (const Impl::Term& term : impl_->terms) {
    if (!find_loss(term.options.name).regression) continue;
    const std::vector<int64_t> own = impl_->views[term.view].numbers();
    channels.insert(channels.end(), own.begin(), own.end());
  }
  return channels;
}

std::vector<int64_t> LossSet::Impl::View::numbers() const {
  std::vector<int64_t> numbers = chosen;
  if (chosen.empty()) {
    numbers.resize(static_cast<size_t>(count));
    std::iota(numbers.begin(), numbers.end(), 0);
  }
  for (int64_t& channel : numbers) channel += first;
  return numbers;
}

bool LossSet::Impl::is_foreground(const Term& term) const {
  return options.kind_of_target(term.options.target) == "foreground";
}

const LossSet::Impl::Term* LossSet::Impl::label_term() const {
  const Term* best = nullptr;
  const auto rank = [&](const Term& term) { return std::pair(!is_foreground(term), views[term.view].channels()); };
  for (const Term& term : terms)
    if (options.is_about_label(term.options) && (!best || rank(term) > rank(*best))) best = &term;
  return best;
}

}  // namespace vox
