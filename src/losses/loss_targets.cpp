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

bool is_foreground(const std::string& target, const LossOptions& options) {
  return options.kind_of_target(target) == "foreground";
}

void require_channel(int64_t largest_class, int64_t channels) {
  VOX_CHECK(largest_class < channels, "the label has class ", largest_class, " but the network has ", channels,
            " channels for it; set model.out_channels to ", largest_class + 1, " or data.ignore_label to that value");
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

bool looks_at_label(const LossOptions& options) {
  return options.terms.empty() || std::any_of(options.terms.begin(), options.terms.end(), [&](const LossTerm& term) {
           const std::string name = target_name(term);
           return name.empty() || is_foreground(name, options);
         });
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
  const Impl::View* const view = impl_->label_view();
  return view ? Compared{view->of(logits), !view->target.empty()} : Compared{};
}

LossSet::LabelChannels LossSet::label_channels() const {
  const Impl::View* view = impl_->label_view();
  const bool foreground = view && !view->target.empty();
  for (const Impl::Term& term : impl_->terms)  // what a loss makes of the label by itself is about the same channels
    if (!view && term.options.target.empty()) view = &impl_->views[term.view];
  if (!view) return {};
  LabelChannels of_label{.channels = view->chosen, .foreground = foreground};
  if (view->chosen.empty()) {
    of_label.channels.resize(static_cast<size_t>(view->count));
    std::iota(of_label.channels.begin(), of_label.channels.end(), 0);
  }
  for (int64_t& channel : of_label.channels) channel += view->first;
  return of_label;
}

const LossSet::Impl::View* LossSet::Impl::label_view() const {
  const auto found = std::find_if(views.begin(), views.end(), [&](const View& view) {
    return view.target.empty() || is_foreground(view.target, options);
  });
  return found == views.end() ? nullptr : &*found;
}

}  // namespace vox
