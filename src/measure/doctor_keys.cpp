#include "measure/doctor_keys.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "nets/registry.h"

namespace vox {
namespace {

struct SwitchedOff {
  const char* key;
  bool (*off)(const Options& options);
  const char* reason;
};

bool adam(const Options& options) {
  return options.training.optimizer != "sgd";
}
bool sgd(const Options& options) {
  return options.training.optimizer == "sgd";
}

bool no_mednext(const Options& options) {
  return options.model.architecture != "mednext";
}
bool no_dynunet(const Options& options) {
  return options.model.architecture != "dynunet";
}

constexpr SwitchedOff kSwitchedOff[] = {
    {"training.momentum", adam, "only training.optimizer: sgd has a momentum"},
    {"training.nesterov", adam, "only training.optimizer: sgd has a momentum"},
    {"training.betas", sgd, "training.optimizer is sgd, which has none"},
    {"training.epsilon", sgd, "training.optimizer is sgd, which has none"},
    {"training.amsgrad", sgd, "training.optimizer is sgd"},
    {"training.keras_epsilon", sgd, "training.optimizer is sgd"},
    {"training.poly_power", [](const Options& o) { return o.training.schedule != "poly"; },
     "only training.schedule: poly has a power"},
    {"training.milestones", [](const Options& o) { return o.training.schedule != "multistep"; },
     "only training.schedule: multistep has milestones"},
    {"training.step_size", [](const Options& o) { return o.training.schedule != "step"; },
     "only training.schedule: step has steps"},
    {"training.plateau_patience", [](const Options& o) { return o.training.schedule != "plateau"; },
     "only training.schedule: plateau waits"},
    {"training.one_cycle_peak", [](const Options& o) { return o.training.schedule != "one_cycle"; },
     "only training.schedule: one_cycle has a peak"},
    {"training.gamma",
     [](const Options& o) {
       return o.training.schedule != "step" && o.training.schedule != "multistep" && o.training.schedule != "plateau";
     },
     "only training.schedule: step, multistep and plateau lower the rate by it"},
    {"training.ema_warmup", [](const Options& o) { return o.training.ema == 0; }, "training.ema is 0"},
    {"training.warmup_start",
     [](const Options& o) { return o.training.warmup_steps == 0 && o.training.schedule != "warmup_cosine"; },
     "training.warmup_steps is 0"},
    {"training.keep_last", [](const Options& o) { return o.training.save_every == 0; }, "training.save_every is 0"},
    {"training.fold", [](const Options& o) { return o.data.split != "kfold"; }, "only data.split: kfold has folds"},
    {"training.early_stop", [](const Options& o) { return o.validation.every == 0; }, "validation.every is 0"},
    {"data.folds", [](const Options& o) { return o.data.split != "kfold"; }, "only data.split: kfold has folds"},
    {"data.train", [](const Options& o) { return o.data.split != "explicit"; },
     "only data.split: explicit reads lists"},
    {"data.validation", [](const Options& o) { return o.data.split != "explicit"; },
     "only data.split: explicit reads lists"},
    {"data.split_column", [](const Options& o) { return o.data.split != "column"; },
     "only data.split: column reads one"},
    {"data.foreground_fraction", [](const Options& o) { return o.data.sampler != "foreground"; },
     "only data.sampler: foreground centres patches"},
    {"data.minimum_labelled",
     [](const Options& o) { return o.data.sampler != "labelled" && o.data.minimum_labelled > 0; },
     "only data.sampler: labelled looks at it"},
    {"data.pad_value", [](const Options& o) { return o.data.padding == "edge" || o.data.padding == "reflect"; },
     "data.padding takes the volume's own values"},
    {"validation.patches", [](const Options& o) { return o.validation.mode != "patches"; },
     "validation.mode is sliding_window"},
    {"validation.metric", [](const Options& o) { return o.validation.every == 0; }, "validation.every is 0"},
    {"model.mednext_size", no_mednext, "model.architecture is no mednext"},
    {"model.mednext_kernel", no_mednext, "model.architecture is no mednext"},
    {"model.mednext_expansion", no_mednext, "model.architecture is no mednext"},
    {"model.mednext_grn", no_mednext, "model.architecture is no mednext"},
    {"model.residual", no_dynunet, "only model.architecture: dynunet chooses by it"},
    {"model.trans_bias", no_dynunet, "only model.architecture: dynunet chooses by it"},
    {"model.deep_supervision_heads", no_dynunet, "only model.architecture: dynunet chooses how many there are"},
    {"model.squeeze_excitation", [](const Options& o) { return o.model.architecture != "resenc_unet"; },
     "only model.architecture: resenc_unet has such gates"},
    {"model.depth_2d", [](const Options& o) { return o.model.architecture != "rsunet"; },
     "only model.architecture: rsunet has flat stages"},
    {"model.up_kernels", [](const Options& o) { return o.model.architecture != "monai_unet"; },
     "only model.architecture: monai_unet has kernels of its own upwards"},
    {"model.num_res_units", [](const Options& o) { return o.model.architecture != "monai_unet"; },
     "only model.architecture: monai_unet has residual units"},
    {"loss.deep_supervision_weights", [](const Options& o) { return !o.model.deep_supervision; },
     "model.deep_supervision is off"},
};

// "rotate" of "augmentation.rotate.range"; empty for the switch itself and for keys of other sections.
std::string transform_of(const std::string& key) {
  const std::vector<std::string> parts = split(key, '.');
  return parts.size() == 3 && parts[0] == "augmentation" && parts[2] != "enabled" ? parts[1] : "";
}

bool is_on(const std::vector<OptionDifference>& changed, const std::string& transform) {
  return std::any_of(changed.begin(), changed.end(), [&](const OptionDifference& one) {
    return one.key == "augmentation." + transform + ".enabled" && one.after == "true";
  });
}

// Whether it is the preset, or `enabled` of a transform that is on.
bool switches_on(const std::string& key, const AugmentationOptions& options,
                 const std::vector<OptionDifference>& changed) {
  const std::vector<std::string> parts = split(key, '.');
  const bool of_transform = parts.size() == 3 && parts[0] == "augmentation" && parts[2] == "enabled";
  return (key == "augmentation.preset" && options.preset != "none") || (of_transform && is_on(changed, parts[1]));
}

}  // namespace

std::vector<KeyWithoutEffect> keys_without_effect(const Config& config) {
  std::vector<KeyWithoutEffect> found;
  const std::vector<OptionDifference> changed = differences(Options{}, config.options);
  for (const KeyReport& key : config.keys) {
    if (key.inherited) continue;  // nobody can unset what a recipe extends
    if (key.use == KeyUse::kNoEffect) {
      constexpr std::string_view kSaid = "has no effect: ";
      found.push_back({key.key, key.note.starts_with(kSaid) ? key.note.substr(kSaid.size()) : key.note});
      continue;
    }
    for (const SwitchedOff& rule : kSwitchedOff)
      if (key.key == rule.key && rule.off(config.options)) found.push_back({key.key, rule.reason});
    if (!config.options.augmentation.enabled && switches_on(key.key, config.options.augmentation, changed))
      found.push_back({key.key, "augmentation.enabled is false"});
    else if (const std::string transform = transform_of(key.key); !transform.empty() && !is_on(changed, transform))
      found.push_back({key.key, concat("augmentation.", transform, ".enabled is off")});
  }
  for (const auto& [key, reason] : ignored_model_options(config.options.model)) found.push_back({key, reason});
  return found;
}

}  // namespace vox
