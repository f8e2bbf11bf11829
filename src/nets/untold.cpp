#include "nets/untold.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace vox {
namespace {

using Strings = std::vector<std::string>;

struct Untold {
  const char* architecture;
  Strings keys;  // of its options
};

const std::vector<Untold>& untold_options() {
  static const std::vector<Untold> all{{"unet", {"activation", "norm"}},
                                       {"resenc_unet", {"activation", "norm"}},
                                       {"monai_unet", {"strides"}},
                                       {"monai_basic_unet3d", {"activation", "norm"}},
                                       {"dynunet", {"activation", "norm"}},
                                       {"rsunet", {"activation"}},
                                       {"cascade_unet", {"activation", "norm"}}};
  return all;
}

std::string assumed(const std::string& key, const Recognised& found, const ModelOptions& options,
                    const Network& network) {
  if (key == "activation") return concat("activation ", network.activation(), " (for another add activation=...)");
  if (key == "norm") {
    return concat("norm ", network.norm(), " (group norms have the same tensors: for them add norm=group ",
                  "norm_groups=N)");
  }
  VOX_ASSERT(key == "strides");
  if (!says(found.options, key)) return "strides of 2 at every level (for others add strides=...)";
  return concat("strides of 2 where the residuals do not show 1 (", options.strides.size(),
                " levels; for others add strides=...)");
}

// Layers and their sizes, norm and activation: what options say, each architecture's own filled in.
std::string function_of(const ModelOptions& options) {
  const std::unique_ptr<Network> network = make_network(options, 0);
  std::string text = concat(network->norm(), " ", network->activation());
  for (const ops::LayerRecord& layer : network->layer_table(network->divisor()).layers) {
    text += " " + layer.name;
    for (const int64_t size : layer.output) text += concat(" ", size);
  }
  return text;
}

// Whether `key` as the file has it changes what is computed; what cannot be built does.
bool computes_otherwise(const std::string& key, const std::string& value, const ModelOptions& ours) {
  for (const char* always : {"upsample", "output_scale", "added_channel"})
    if (key == always) return true;
  if (key == "norm_groups") return ours.norm == "group";
  try {
    return function_of(model_options(describe(ours), {concat(key, "=", value)})) != function_of(ours);
  } catch (const Error&) {
    return true;
  }
}

}  // namespace

bool says(const Strings& options, const std::string& key) {
  return std::any_of(options.begin(), options.end(), [&](const std::string& text) {
    return text.starts_with(key + "=") || text.starts_with("model." + key + "=");
  });
}

void require_told(const std::string& path, const Recognised& found, const Strings& overrides) {
  const auto told = [&](const char* key) { return says(found.options, key) || says(overrides, key); };
  if (found.architecture == "monai_unet") {
    VOX_CHECK(
        told("norm"), path, ": the norms of this monai_unet may be group norms or affine instance norms, whose ",
        "tensors have the same names and shapes; for group norms add norm=group norm_groups=N (the file does not ",
        "say how many); affine instance norms of monai_unet are not supported");
    VOX_CHECK(told("activation"), path,
              ": the activations of this monai_unet have no tensors; add activation=relu, or ",
              "whatever it was trained with");
  }
  if (found.architecture == "rsunet") {
    VOX_CHECK(told("norm"), path, ": the norms of this rsunet have no tensors; add norm=instance where it was trained ",
              "with instance norms, norm=none where it has none");
    const bool grouped = std::count(found.options.begin(), found.options.end(), "norm=group") > 0;
    VOX_CHECK(!grouped || (told("norm_groups") && told("activation")), path, ": the norms of this rsunet are group ",
              "norms, and the file does not say how many groups they have", told("activation") ? "" : ", nor which ",
              told("activation") ? "" : "activation follows", "; add norm_groups=N, the num_groups it was trained with",
              told("activation") ? "" : ", and activation=elu, or whichever it was");
  }
}

std::string assumed_note(const Recognised& found, const Strings& overrides, const ModelOptions& options,
                         const Network& network) {
  Strings parts;
  for (const Untold& untold : untold_options()) {
    if (untold.architecture != options.architecture) continue;
    for (const std::string& key : untold.keys) {
      const bool seen = key != "strides" && says(found.options, key);
      if (!seen && !says(overrides, key)) parts.push_back(assumed(key, found, options, network));
    }
  }
  return parts.empty() ? "" : "the weights do not tell, so it is assumed: " + join(parts, "; ");
}

std::string other_function_note(const Metadata& metadata, const ModelOptions& options, const std::string& path) {
  if (metadata.count("architecture") + metadata.count("model.architecture") == 0) return "";
  const ModelOptions theirs = model_options(metadata);
  if (theirs.architecture != options.architecture) return "";
  Metadata there = describe(theirs), here = describe(options);
  Strings differences;
  for (const char* key :
       {"activation", "norm", "norm_groups", "strides", "upsample", "output_scale", "added_channel"}) {
    if (there[key] != here[key] && computes_otherwise(key, there[key], options))
      differences.push_back(concat("model.", key, " is ", there[key], " there and ", here[key], " here"));
  }
  if (differences.empty()) return "";
  return concat(path, ": the tensors do not show it, but its network computes something else than this one: ",
                join(differences, "; "));
}

std::vector<std::string> lost_in_export(const ModelOptions& options) {
  Strings lost;
  if (options.output_scale != 1) {
    lost.push_back(concat("the state dict does not hold model.output_scale: multiply the original's outputs by ",
                          options.output_scale));
  }
  if (options.added_channel >= 0) {
    lost.push_back(concat("the state dict does not hold model.added_channel: add channel ", options.added_channel,
                          " of the image to the original's outputs", options.output_scale != 1 ? " first" : ""));
  }
  const bool nnunet = options.architecture == "unet" || options.architecture == "resenc_unet";
  if (nnunet && options.upsample != "deconv") {
    lost.push_back(concat("the original has no model.upsample: ", options.upsample,
                          "; it goes up by transposed convolutions, and does not take these weights"));
  }
  if (nnunet && !options.strides.empty() && options.strides.front() != Extent3{1, 1, 1}) {
    lost.push_back(concat("the original predicts at the first of model.strides, ", options.strides.front(),
                          ", with a convolution where these weights have a transposed one, and does not take them"));
  }
  if (options.architecture == "resenc_unet" && options.squeeze_excitation != "none" &&
      options.squeeze_excitation != "channel") {
    lost.push_back(concat("the original has no model.squeeze_excitation: ", options.squeeze_excitation,
                          "; it does not take these weights"));
  }
  return lost;
}

}  // namespace vox
