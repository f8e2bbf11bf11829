#include "losses/loss.h"

#include <torch/torch.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/span.h"
#include "base/text.h"
#include "losses/fused.h"
#include "losses/loss_set.h"

namespace vox {

#define VOX_LOSS(name) LossEntry name##_entry();
#include "losses/losses.list"
#undef VOX_LOSS

const std::vector<LossEntry>& all_losses() {
#define VOX_LOSS(name) name##_entry(),
  static const std::vector<LossEntry> entries{
#include "losses/losses.list"
  };
#undef VOX_LOSS
  return entries;
}

const LossEntry& find_loss(const std::string& name) {
  std::vector<std::string> names;
  for (const LossEntry& entry : all_losses()) {
    if (entry.name == name) return entry;
    names.push_back(entry.name);
  }
  const std::string meant = nearest(name, names);
  throw Error(concat("loss.terms: no loss is called \"", name, "\"; there is ", join(names, ", "),
                     meant.empty() ? "" : concat(". Did you mean ", meant, "?")));
}

int64_t steps_between(const LossTerm& term) {
  return term.every > 0 ? term.every : find_loss(term.name).default_every;
}

const at::Tensor& Constants::like(const at::Tensor& other) const {
  if (!made_.defined() || made_.device() != other.device() || made_.scalar_type() != other.scalar_type()) {
    made_ = at::tensor(values_, at::kDouble).to(other.device(), other.scalar_type());
  }
  return made_;
}

std::vector<LossTerm> default_terms(const DataOptions& data, int64_t out_channels) {
  const auto named = [](const char* name) {
    LossTerm term;
    term.name = name;
    return term;
  };
  if (data.target == "regression") return {named("mae")};
  return {named("dice"), named(out_channels == 1 ? "bce" : "cross_entropy")};
}

namespace {

// torch's "nearest": element floor(i * in / out).
at::Tensor resize_nearest(const at::Tensor& values, at::IntArrayRef size) {
  at::Tensor result = values;
  for (int64_t axis = 2; axis < 5; ++axis) {
    const int64_t from = values.size(axis), to = size[static_cast<size_t>(axis)];
    if (from == to) continue;
    VOX_ASSERT(to > 0 && to < from);
    if (from % to == 0) {
      result = result.slice(axis, 0, from, from / to);
    } else {
      const at::Tensor index = at::arange(to, at::TensorOptions(at::kLong).device(values.device()));
      result = result.index_select(axis, (index * from).floor_divide(to));
    }
  }
  return result;
}

const at::Tensor& target_named(const Targets& targets, const std::string& name) {
  if (name.empty()) return targets.label;
  const auto found = targets.extra.find(name);
  VOX_CHECK(found != targets.extra.end(), "loss.terms: there is no target \"", name, "\" in the batch");
  return found->second;
}

at::Tensor resize_mean(const at::Tensor& values, at::IntArrayRef size) {
  return values.sizes().slice(2) == size.slice(2) ? values : at::adaptive_avg_pool3d(values, size.slice(2));
}

}  // namespace

std::vector<double> LossSet::Impl::head_weights(size_t outputs) const {
  std::vector<double> weights = options.deep_supervision_weights;
  if (outputs == 1) return {1.0};
  VOX_CHECK(weights.empty() || weights.size() == outputs, "loss.deep_supervision_weights has ", weights.size(),
            " entries but the network has ", outputs, " outputs; give one per output, the finest first, or none");
  if (!weights.empty()) return weights;
  for (size_t i = 0; i < outputs; ++i) weights.push_back(std::ldexp(1.0, -static_cast<int>(i)));
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& weight : weights) weight /= sum;
  return weights;
}

at::Tensor LossSet::Impl::View::of(const at::Tensor& logits) const {
  const at::Tensor own = count == logits.size(1) ? logits : logits.narrow(1, first, count);
  if (chosen.empty()) return own;
  std::vector<at::Tensor> channels;  // not by an index, whose way to a GPU would be waited for
  for (const int64_t channel : chosen) channels.push_back(own.narrow(1, channel, 1));
  return channels.size() == 1 ? channels.front() : at::cat(channels, 1);
}

LossSet::Impl::View LossSet::Impl::view_of(const LossTerm& term, const LossEntry& entry) const {
  View view{.first = 0, .count = out_channels, .chosen = term.channels, .target = term.target};
  if (view.target.empty()) view.target = entry.default_target;
  if (view.target == "label") view.target.clear();
  if (!term.head.empty()) {
    std::vector<std::string> names;
    for (const HeadOptions& head : heads) {
      if (head.name == term.head) view.count = head.channels;
      if (head.name == term.head) break;
      view.first += head.channels;
      names.push_back(head.name);
    }
    VOX_CHECK(names.size() < heads.size(), "loss.terms: ", term.name, ": no head is called \"", term.head,
              heads.empty() ? "\"; model.heads names none" : concat("\"; model.heads has ", join(names, ", ")));
  }
  for (const int64_t channel : view.chosen)
    VOX_CHECK(channel < view.count, "loss.terms: ", term.name, ": channel ", channel, " but there are ", view.count,
              ", counted from 0");
  return view;
}

void LossSet::Impl::add_term(const LossTerm& term) {
  const LossEntry& entry = find_loss(term.name);
  const View view = view_of(term, entry);
  VOX_CHECK(!view.target.empty() || entry.regression == regression, "loss.terms: ", term.name, " is for ",
            entry.regression ? "regression" : "segmentation", " but data.target is ",
            regression ? "regression" : "segmentation");
  VOX_CHECK(term.every >= 0 && term.start_step >= 0, "loss.terms: ", term.name, ": every is ", term.every,
            " and start_step ", term.start_step, "; expected at least 1 and 0");
  const auto same =
      std::count_if(terms.begin(), terms.end(), [&](const Term& t) { return t.options.name == term.name; });
  const std::string label = same == 0 ? term.name : concat(term.name, "_", same + 1);
  const auto found = std::find(views.begin(), views.end(), view);
  const auto place = static_cast<size_t>(found - views.begin());
  if (found == views.end()) views.push_back(view);
  terms.push_back(
      {label, term, place, entry.make(term.params, {.out_channels = view.channels()}), span_name("loss." + label)});
  Term& added = terms.back();
  added.options.every = steps_between(term);
  VOX_CHECK(added.loss->delay() < added.options.every, "loss.terms: ", label, ": delay is ", added.loss->delay(),
            " but it must be below `every`, which is ", added.options.every,
            ", so that a batch is done with before the next is kept");
}

at::Tensor LossSet::Impl::valid_voxels(const Targets& targets) const {
  at::Tensor valid;
  if (!regression && ignore_label >= 0) valid = targets.label != ignore_label;
  if (targets.mask.defined()) {
    const at::Tensor inside = targets.mask != 0;
    valid = valid.defined() ? valid & inside : inside;
  }
  return valid;
}

// Numbers, one volume a channel, instead of classes.
bool LossSet::Impl::holds_values(const at::Tensor& target, const View& view) const {
  return at::isFloatingType(target.scalar_type()) || (view.target.empty() && regression) ||
         (target.size(1) == view.channels() && view.channels() > 1);
}

// At coarser outputs classes come from the nearest voxel, values are the mean of the voxels that fall together.
bool LossSet::Impl::is_averaged(const at::Tensor& target, const View& view) const {
  return view.target.empty() ? regression : at::isFloatingType(target.scalar_type());
}

bool LossSet::Impl::reads_image() const {
  return std::any_of(terms.begin(), terms.end(), [](const Term& term) { return term.loss->reads_image(); });
}

LossInput LossSet::Impl::input_for(const at::Tensor& logits, const Targets& targets, const at::Tensor& valid,
                                   const View& view) const {
  LossInput input;
  input.logits = view.of(logits);
  if (input.logits.scalar_type() != at::kDouble) input.logits = input.logits.to(at::kFloat);
  const at::ScalarType type = input.logits.scalar_type();
  at::Tensor counted = valid.defined() ? resize_nearest(valid, logits.sizes()) : valid;
  if (targets.image.defined() && reads_image()) input.image = resize_nearest(targets.image, logits.sizes());
  const at::Tensor& whole = target_named(targets, view.target);
  at::Tensor target =
      is_averaged(whole, view) ? resize_mean(whole.to(type), logits.sizes()) : resize_nearest(whole, logits.sizes());
  if (may_be_unknown(whole, view)) {
    const at::Tensor known = at::isFloatingType(whole.scalar_type()) ? ~target.isnan() : target >= 0;
    input.known = known.to(type);
    counted = counted.defined() ? counted & known : known;
    target = target.masked_fill(~known, 0);
  }
  if (counted.defined()) input.valid = counted.to(type);
  const int64_t channels = view.channels();
  input.one_hot = !holds_values(target, view);
  VOX_CHECK(target.size(1) == (input.one_hot ? 1 : channels), "the target",
            view.target.empty() ? "" : " " + view.target, " has ", target.size(1),
            " channels but the loss compares it with ", channels,
            "; set model.out_channels, or `channels` of the term");
  if (!input.one_hot) {
    input.target = target.to(type);
  } else if (channels == 1) {
    input.target = (target > 0).to(type);
  } else {
    const at::Tensor classes = classes_of(target, counted, channels);
    const at::Tensor channel = at::arange(channels, classes.options()).view({1, -1, 1, 1, 1});
    input.target = (classes == channel).to(type);
    input.classes = classes.squeeze(1);
  }
  return input;
}

double LossSet::Impl::head_weight(const Term& term, const std::vector<double>& weights, size_t head) const {
  if (weights[head] == 0 || (head > 0 && !term.options.deep_supervision)) return 0;
  return term.options.deep_supervision ? weights[head] : 1;
}

// Those of the due terms that kernels compute together, view by view; the others stay absent from the result.
void LossSet::Impl::fuse(const std::vector<at::Tensor>& logits, const Targets& targets, const std::vector<bool>& due,
                         const Laps& laps, LossResult& result) const {
  const std::vector<double> weights = head_weights(logits.size());
  for (size_t v = 0; v < views.size(); ++v) {
    FusedRequest request;
    for (size_t t = 0; t < terms.size(); ++t) {
      const std::optional<FusedTerm> form = terms[t].loss->fused();
      if (!due[t] || terms[t].view != v || !form) continue;
      FusedRequest::Term term{t, *form, terms[t].options.weight * static_cast<double>(terms[t].options.every), {}};
      for (size_t head = 0; head < logits.size(); ++head)
        term.head_weights.push_back(head_weight(terms[t], weights, head));
      request.terms.push_back(term);
    }
    if (request.terms.empty()) continue;
    request.target = target_named(targets, views[v].target);
    const auto full = request.target.sizes().slice(2);
    if (is_averaged(request.target, views[v]) &&
        std::any_of(logits.begin(), logits.end(), [&](const auto& l) { return l.sizes().slice(2) != full; }))
      continue;  // coarser outputs see means
    if (may_be_unknown(request.target, views[v])) continue;
    for (const size_t head : drop_unweighed_heads(request, logits.size()))
      request.logits.push_back(views[v].of(logits[head]));
    request.values = holds_values(request.target, views[v]);
    if (!regression && ignore_label >= 0) request.label = targets.label;
    request.mask = targets.mask;
    request.ignored = ignore_label;
    request.class_values = class_values.values();
    laps.take();
    const FusedResult fused = compute_fused(request);
    std::vector<size_t> computed;
    for (const auto& [term, value] : fused.values) {
      result.terms[term].second = value;
      computed.push_back(term);
    }
    laps.take(computed);
    if (fused.total.defined()) result.total = result.total.defined() ? result.total + fused.total : fused.total;
  }
}

LossSet::LossSet(const LossOptions& options, const DataOptions& data, int64_t out_channels,
                 const std::vector<HeadOptions>& heads)
    : impl_(std::make_unique<Impl>()) {
  impl_->options = options;
  impl_->regression = data.target == "regression";
  impl_->partial = data.ignore_label >= 0 || !data.mask.empty();
  impl_->out_channels = out_channels;
  impl_->heads = heads;
  impl_->ignore_label = data.ignore_label;
  impl_->set_class_values(data);
  for (const LossTerm& term : options.terms.empty() ? default_terms(data, out_channels) : options.terms) {
    impl_->add_term(term);
  }
  require_channels(data.labels);
  require_background(data.labels);
  label_channels();  // refuses classes that do not fit their term
}

LossSet::~LossSet() = default;

std::vector<std::string> LossSet::term_names() const {
  std::vector<std::string> names;
  for (const Impl::Term& term : impl_->terms) names.push_back(term.label);
  return names;
}

// What is made from patches knows more of some samples than of others.
bool LossSet::Impl::is_batch_wise(const Term& term, bool masked) const {
  const bool made = !options.is_about_label(term.options);
  return term.loss->batch_wise(partial || masked || made) || (made && find_loss(term.options.name).regression);
}

bool LossSet::batch_wise(bool masked) const {
  return std::any_of(impl_->terms.begin(), impl_->terms.end(),
                     [&](const Impl::Term& term) { return impl_->is_batch_wise(term, masked); });
}

LossResult LossSet::compute(const std::vector<at::Tensor>& logits, const Targets& targets, int64_t step,
                            Delays delays) const {
  VOX_ASSERT(!logits.empty());
  const std::vector<double> weights = impl_->head_weights(logits.size());
  LossResult result;
  std::vector<bool> missing;
  for (size_t t = 0; t < impl_->terms.size(); ++t) {
    result.terms.emplace_back(impl_->terms[t].label, std::nullopt);
    missing.push_back(delays == Delays::kHonoured ? due(t, step) : impl_->begins(impl_->terms[t], step));
  }
  const Impl::Laps laps(delays == Delays::kHonoured ? impl_->clock : at::Tensor());
  if (logits[0].is_cuda()) impl_->fuse(logits, targets, missing, laps, result);
  for (size_t t = 0; t < missing.size(); ++t) missing[t] = missing[t] && !result.terms[t].second;
  const bool any = std::find(missing.begin(), missing.end(), true) != missing.end();
  const at::Tensor valid = any ? impl_->valid_voxels(targets) : at::Tensor();
  if (any) laps.take();
  std::vector<at::Tensor> values(missing.size());
  for (size_t head = 0; head < logits.size(); ++head) {
    std::vector<std::optional<LossInput>> inputs(impl_->views.size());
    for (size_t t = 0; t < values.size(); ++t) {
      Impl::Term& term = impl_->terms[t];
      const double weight = impl_->head_weight(term, weights, head);
      if (!missing[t] || weight == 0) continue;
      const Span span(term.span);
      const Clock::time_point begin = Clock::now();
      std::optional<LossInput>& input = inputs[term.view];
      if (!input) input = impl_->input_for(logits[head], targets, valid, impl_->views[term.view]);
      const at::Tensor value = term.loss->compute(*input) * weight;
      values[t] = values[t].defined() ? values[t] + value : value;
      laps.take({t});
      if (value.is_cpu() && delays == Delays::kHonoured) term.seconds = term.seconds.value_or(0) + seconds_since(begin);
    }
  }
  for (size_t t = 0; t < values.size(); ++t) {
    if (!values[t].defined()) continue;
    const LossTerm& options = impl_->terms[t].options;
    result.terms[t].second = values[t].detach();
    const at::Tensor weighted = values[t] * (options.weight * static_cast<double>(options.every));
    result.total = result.total.defined() ? result.total + weighted : weighted;
  }
  // Between the steps of rare terms nothing may be due: a zero that still has a gradient keeps the step whole.
  if (!result.total.defined()) result.total = logits[0].to(at::kFloat).sum() * 0;
  return result;
}

}  // namespace vox
