// What the terms of a recipe are compared with: the label, its classes, and what is made from it.
#include <torch/torch.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "config/params.h"
#include "config/target_options.h"
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
    if (impl_->sees_label(view) && view.channels() > 1) require_channel(largest, view.channels());
}

void LossSet::require_background(std::vector<int64_t> label_values) const {
  std::erase(label_values, impl_->ignore_label);
  const bool background = std::find(label_values.begin(), label_values.end(), 0) != label_values.end();
  for (const Impl::View& view : impl_->views)
    VOX_CHECK(background || label_values.size() < 2 || !impl_->sees_label(view) || view.channels() > 1,
              "the labels have the values ", label_values.front(), " and ", label_values.back(),
              " but no 0, and a loss term that sees one channel tells 0 from everything else; name the values in "
              "data.labels and give the term as many channels as these are (model.out_channels, or its own channels)");
}

LossSet::Compared LossSet::compared_with_label(const at::Tensor& logits) const {
  const Impl::Term* const term = impl_->label_term();
  if (!term) return {};
  at::Tensor seen = impl_->views[term->view].of(logits);
  std::vector<int64_t> values;
  const std::vector<int64_t> order = impl_->class_order_of(*term, values);
  if (!order.empty()) seen = seen.index_select(1, at::tensor(order, at::kLong).to(seen.device()));
  return {term->loss->takes_tanh() ? seen.tanh() : seen, impl_->is_foreground(*term), std::move(values),
          !find_loss(term->options.name).regression};
}

LossSet::LabelChannels LossSet::label_channels() const {
  const Impl::Term* const term = impl_->label_term();
  if (!term) return {};
  const std::vector<int64_t> channels = impl_->views[term->view].numbers();
  const bool softmax = std::any_of(impl_->terms.begin(), impl_->terms.end(), [&](const Impl::Term& other) {
    return impl_->takes_softmax(other) && impl_->views[other.view].numbers() == channels;
  });
  LabelChannels found{channels, impl_->is_foreground(*term), softmax};
  const std::vector<int64_t> order = impl_->class_order_of(*term, found.values);
  for (size_t i = 0; i < order.size(); ++i) found.channels[i] = channels[static_cast<size_t>(order[i])];
  return found;
}

std::vector<int64_t> LossSet::channels_against(const std::string& kind) const {
  return impl_->channels_of(
      [&](const Impl::Term& term) { return impl_->options.kind_of_target(term.options.target) == kind; });
}

std::vector<int64_t> LossSet::Impl::channels_of(const std::function<bool(const Term& term)>& wanted) const {
  std::vector<int64_t> channels;
  for (const Term& term : terms) {
    if (!wanted(term)) continue;
    for (const int64_t channel : views[term.view].numbers())
      if (std::find(channels.begin(), channels.end(), channel) == channels.end()) channels.push_back(channel);
  }
  return channels;
}

std::vector<int64_t> LossSet::value_channels() const {
  return impl_->channels_of([](const Impl::Term& term) { return find_loss(term.options.name).regression; });
}

std::vector<int64_t> LossSet::tanh_channels() const {
  return impl_->channels_of([](const Impl::Term& term) { return term.loss->takes_tanh(); });
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

bool LossSet::Impl::takes_softmax(const Term& term) const {
  const bool classes = options.is_about_label(term.options) && options.kind_of_target(term.options.target) != "one_hot";
  return classes && views[term.view].channels() > 1 && find_loss(term.options.name).softmax;
}

// Places of the channels of a one_hot target by ascending label value, with these values; empty: it is none.
std::vector<int64_t> LossSet::Impl::class_order_of(const Term& term, std::vector<int64_t>& values) const {
  if (options.kind_of_target(term.options.target) != "one_hot") return {};
  const TargetOptions target = target_called(term.options.target, options);
  values = parse_params<OneHotOptions>(target.params, "loss.targets: one_hot").classes;
  VOX_CHECK(std::ssize(values) == views[term.view].channels(), "loss.targets: ", target.name, " has ", values.size(),
            " classes, but loss.terms: ", term.options.name, " sees ", views[term.view].channels(), " channels");
  VOX_CHECK(values != std::vector<int64_t>{0}, "loss.targets: ", target.name,
            " has the class 0 alone, and no label could be made of it; name the others");
  std::vector<int64_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](int64_t a, int64_t b) { return values[static_cast<size_t>(a)] < values[static_cast<size_t>(b)]; });
  std::sort(values.begin(), values.end());
  return order;
}

// Only what is made from a patch: where that does not show enough, it says so by a value below 0, or NaN.
bool LossSet::Impl::may_be_unknown(const at::Tensor& target, const View& view) {
  return !view.target.empty() && (at::isFloatingType(target.scalar_type()) || target.scalar_type() == at::kChar);
}

const LossSet::Impl::Term* LossSet::Impl::label_term() const {
  const Term* best = nullptr;
  const auto rank = [&](const Term& term) { return std::pair(!is_foreground(term), views[term.view].channels()); };
  for (const Term& term : terms)
    if (options.is_about_label(term.options) && (!best || rank(term) > rank(*best))) best = &term;
  return best;
}

}  // namespace vox
