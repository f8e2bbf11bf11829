// Some originals register a layer under two names, and their state dicts hold it twice.
#include "base/error.h"
#include "nets/recognise.h"
#include "nets/shape_view.h"

namespace vox {
namespace {

// Where nnU-Net's blocks have a layer in the sequence of convolution, dropout, norm and activation; -1: not there. Only
// the first block of a residual one drops.
int place_in_block(const std::string& block, const std::string& layer, bool has_dropout, const ShapeMap& all) {
  const bool drops = has_dropout && !block.ends_with(".conv2") && block.find(".skip.") == std::string::npos;
  const int norm = drops ? 2 : 1;
  if (layer == "conv") return 0;
  if (layer == "norm") return norm;
  return layer == "nonlin" ? norm + (all.count(block + ".norm.weight") > 0 ? 1 : 0) : -1;
}

// nnU-Net: a block holds its layers by name and again as a sequence; the decoder holds the encoder.
Strings nnunet_copies(const std::string& name, bool has_dropout, const ShapeMap& all) {
  const size_t leaf = name.rfind('.');
  const size_t layer = leaf == std::string::npos || leaf == 0 ? leaf : name.rfind('.', leaf - 1);
  Strings names{name};
  if (layer != std::string::npos) {
    const std::string block = name.substr(0, layer);
    const int place = place_in_block(block, name.substr(layer + 1, leaf - layer - 1), has_dropout, all);
    if (place >= 0) names.push_back(concat(block, ".all_modules.", place, name.substr(leaf)));
  }
  Strings copies(names.begin() + 1, names.end());
  if (name.starts_with("encoder.")) {
    for (const std::string& one : names) copies.push_back("decoder." + one);
  }
  return copies;
}

std::string skip_layer(int64_t depth) {
  std::string path = "skip_layers.";
  for (int64_t i = 0; i < depth; ++i) path += "next_layer.";
  return path;
}

// DynUNet: every block again along the chain of skips, each one level deeper.
Strings dynunet_copies(const std::string& name, const ShapeMap& all) {
  const ShapeView shapes(all, "");
  const int64_t downs = shapes.count("downsamples.", ".conv1.conv.weight");
  const auto rest = [&](const std::string& start) { return name.substr(start.size()); };
  if (name.starts_with("input_block.")) return {skip_layer(0) + "downsample." + rest("input_block.")};
  if (name.starts_with("bottleneck.")) return {skip_layer(downs + 1) + rest("bottleneck.")};
  for (int64_t i = 0; i <= downs; ++i) {
    const std::string down = concat("downsamples.", i, "."), up = concat("upsamples.", i, ".");
    const std::string head = concat("deep_supervision_heads.", i, ".");
    if (name.starts_with(down)) return {skip_layer(i + 1) + "downsample." + rest(down)};
    if (name.starts_with(up)) return {skip_layer(downs - i) + "upsample." + rest(up)};
    if (name.starts_with(head)) return {skip_layer(i + 1) + "super_head." + rest(head)};
  }
  return {};
}

}  // namespace

bool is_second_copy(const std::string& name) {
  return name.find(".all_modules.") != std::string::npos || name.starts_with("decoder.encoder.") ||
         name.starts_with("skip_layers.");
}

Strings second_copies(const ModelOptions& options, const std::string& name, const ShapeMap& all) {
  if (options.architecture == "unet" || options.architecture == "resenc_unet") {
    return nnunet_copies(name, options.dropout > 0, all);
  }
  return options.architecture == "dynunet" ? dynunet_copies(name, all) : Strings{};
}

}  // namespace vox
