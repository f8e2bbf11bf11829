#include "cli/check_recipe.h"

#include <algorithm>

#include "augment/augment.h"
#include "base/error.h"
#include "infer/predict.h"
#include "losses/loss.h"
#include "nets/network.h"
#include "nets/registry.h"
#include "nets/safetensors.h"
#include "patch/sampler.h"
#include "targets/target.h"
#include "train/learner.h"
#include "train/predict_run.h"
#include "train/schedule.h"
#include "train/validate.h"
#include "volume/dataset.h"
#include "volume/preprocess.h"
#include "volume/unit.h"

namespace vox::cli {
namespace {

constexpr int64_t kTriedDraws = 16;  // of transforms that always act: what they choose between comes up

class EveryTransformActs final : public Visitor {  // that ever does
  void visit(const std::string& key, const FieldRef& field, const Spec&) override {
    double* const* const probability = std::get_if<double*>(&field);
    if (probability && key.ends_with(".prob") && **probability > 0) **probability = 1;
  }
};

int64_t channels_of(const LossTerm& term, const ModelOptions& model) {  // that it sees; 0: the data will say
  if (!term.channels.empty()) return std::ssize(term.channels);
  int64_t all = 0;
  for (const HeadOptions& head : model.heads) {
    if (head.name == term.head) return head.channels;
    all += head.channels;
  }
  return all > 0 ? all : model.out_channels;
}

void check_loss(const Options& options) {
  std::vector<std::string> terms = check_loss_terms(options);
  for (const TargetOptions& target : targets_of(options.loss)) {
    const std::unique_ptr<Target> made = make_target(target);
    const bool values = made->channels() > 1 || !is_integer(made->dtype());
    for (const LossTerm& term : options.loss.terms) {
      if (term.target != target.name) continue;
      VOX_CHECK(is_integer(made->dtype()) || find_loss(term.name).regression, "loss.terms: ", term.name,
                " is for classes, but the target ", target.name, " has real values; use mse, mae or smooth_l1");
      VOX_CHECK(!values || !find_loss(term.name).needs_classes, "loss.terms: ", term.name,
                " is for classes, of which a voxel has one, but the target ", target.name,
                " has a volume for each channel; use bce, focal or dice");
      const int64_t seen = channels_of(term, options.model);
      VOX_CHECK(!values || seen == 0 || seen == made->channels(), "loss.terms: ", term.name, " sees ", seen,
                seen == 1 ? " channel" : " channels", ", but the target ", target.name, " has ", made->channels(),
                "; set model.out_channels, its head, or `channels` of the term");
    }
  }
  const DataOptions& data = options.data;
  const bool validates =
      options.validation.every > 0 && data.split != "none" && (data.split != "explicit" || !data.validation.empty());
  const bool open = options.loss.terms.empty() && options.model.out_channels == 0;
  if (open && data.target != "regression")
    terms.push_back(default_terms(data, 2).back().name);  // it depends on the labels
  if (validates) check_metric(options, terms);
}

void check_transforms(const Options& options, int64_t image_channels) {
  AugmentationOptions augmentation = options.augmentation;
  EveryTransformActs visitor;
  augmentation.describe(visitor);
  int64_t channels = image_channels;
  for (const int64_t named : options.augmentation.channels)
    if (image_channels == 0) channels = std::max(channels, named + 1);
  for (int64_t sample = 0; sample < kTriedDraws; ++sample)
    draw_transforms(augmentation, options.data.patch_size, {}, static_cast<uint64_t>(options.training.seed), sample,
                    std::max<int64_t>(1, channels));
}

// Of a name that is none, making it says so; the others are made once there is data.
void check_architecture(const ModelOptions& model) {
  VOX_CHECK(model.file.empty() || model.architecture == "torchscript",
            "model.file names a TorchScript module, but model.architecture is ", model.architecture,
            "; set it to torchscript, or leave model.file out");
  const auto is_it = [&](const NetworkEntry& entry) { return entry.name == model.architecture; };
  if (std::none_of(all_networks().begin(), all_networks().end(), is_it)) make_network(model, 0);
}

CaseUnits open_or_leave_out(const Case& one, const DataOptions& data, const Preprocess& preprocess) {
  try {
    return open_case(one, data, preprocess);
  } catch (const std::exception& error) {
    if (data.on_bad_case == "skip") return {};
    throw with_context(concat("case ", one.id), error);
  }
}

}  // namespace

void check_settings(const Options& options) {
  check_architecture(options.model);
  window_options(options);
  Preprocess(options.data);
  sampler_named(options.data.sampler);
  check_loss(options);
  require_fitting_postprocess(options);
  check_transforms(options, options.model.in_channels);
  Schedule(options.training, {});
  if (!options.model.weights.empty()) SafetensorsFile(options.model.weights);
}

void check_cases(const Options& options) {
  make_dataset(options.data, options.training.fold, static_cast<uint64_t>(options.training.seed));
}

HeaderFacts check_headers(const Options& options) {
  const Preprocess preprocess(options.data);
  Dataset dataset;
  try {
    dataset = make_dataset(options.data, options.training.fold, static_cast<uint64_t>(options.training.seed));
  } catch (const Error& error) {
    return {options.model.in_channels, options.data.synth.kind.empty() ? error.what() : "", 0};
  }
  HeaderFacts facts{.image_channels = options.model.in_channels, .why_unknown = {}, .training_bytes = 0};
  for (int64_t i = 0; i < static_cast<int64_t>(dataset.cases.size()); ++i) {
    const Case& one = dataset.cases[static_cast<size_t>(i)];
    const CaseUnits units = open_or_leave_out(one, options.data, preprocess);
    if (units.images.empty()) continue;
    facts.image_channels = static_cast<int64_t>(units.images.size());
    const bool drawn = std::find(dataset.train.begin(), dataset.train.end(), i) != dataset.train.end();
    if (!drawn) continue;
    require_patch_fits(options.data, one.id, units.images.front().stored.extent);
    for (const Unit& image : units.images) facts.training_bytes += image.stored.bytes();
    for (const std::optional<Unit>* other : {&units.label, &units.mask})
      if (*other) facts.training_bytes += (*other)->stored.bytes();
  }
  check_transforms(options, facts.image_channels);
  return facts;
}

}  // namespace vox::cli
