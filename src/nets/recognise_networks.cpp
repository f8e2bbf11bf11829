// What the shapes of each network's weights say of its options.
#include <algorithm>

#include "base/error.h"
#include "nets/shape_view.h"

namespace vox {
namespace {

using Sizes = std::vector<int64_t>;
using Kernels = std::vector<Sizes>;

const Sizes kOnes{1, 1, 1}, kThrees{3, 3, 3};

void add_kernels(Strings& options, const std::string& key, const Kernels& kernels) {
  const bool plain = std::all_of(kernels.begin(), kernels.end(), [](const Sizes& k) { return k == kThrees; });
  if (!plain) options.push_back(option(key, kernels));
}

int64_t out_of_transposed(const ShapeView& shapes, const std::string& name) {
  return shapes.size(name, 1);  // [in, out, z, y, x]
}

// The decoder of nnU-Net's networks: transposed convolutions whose kernels are the strides, the deepest first. The last
// is the output layer where the first stage has a stride.
void add_nnunet_decoder(Strings& options, const ShapeView& shapes) {
  const int64_t ups = shapes.count("decoder.transpconvs.", ".weight");
  const std::string head = concat("decoder.seg_layers.", ups - 1, ".weight");
  Kernels strides{shapes.kernel(head)};
  Sizes convs;
  for (int64_t i = ups - 1; i >= 0; --i) {
    strides.push_back(shapes.kernel(concat("decoder.transpconvs.", i, ".weight")));
    convs.push_back(shapes.count(concat("decoder.stages.", i, ".convs."), ".conv.weight"));
  }
  options.push_back(option("strides", strides));
  options.push_back(option("decoder_convs", convs));
  options.push_back(
      option("out_channels", strides.front() == kOnes ? shapes.size(head, 0) : out_of_transposed(shapes, head)));
  if (shapes.any_ends_with(".norm.running_mean")) options.push_back("norm=batch");
  if (shapes.any_ends_with(".nonlin.weight")) options.push_back("activation=prelu");
  if (!shapes.has("decoder.stages.0.convs.0.conv.bias")) options.push_back("conv_bias=false");
}

// How MONAI's networks go up. Interpolation is the one that leaves no weights where the channels stay.
void add_monai_upsampling(Strings& options, const ShapeView& shapes, bool transposed) {
  const bool shuffled = shapes.any_ends_with(".pixelshuffle.conv_block.weight");
  if (!transposed) options.push_back(shuffled ? "upsample=pixelshuffle" : "upsample=trilinear");
}

std::string monai_level(int64_t level) {
  std::string path = "model.";
  for (int64_t i = 0; i < level; ++i) path += "1.submodule.";
  return path;
}

}  // namespace

Strings infer_unet(const ShapeView& shapes) {
  const std::string first = "encoder.stages.0.0.convs.0.conv.weight";
  Strings options{option("in_channels", shapes.size(first, 1))};
  Sizes filters, convs;
  Kernels kernels;
  for (int64_t stage = 0; stage < shapes.count("encoder.stages.", ".0.convs.0.conv.weight"); ++stage) {
    const std::string convs_of = concat("encoder.stages.", stage, ".0.convs.");
    filters.push_back(shapes.size(convs_of + "0.conv.weight", 0));
    kernels.push_back(shapes.kernel(convs_of + "0.conv.weight"));
    convs.push_back(shapes.count(convs_of, ".conv.weight"));
  }
  options.push_back(option("filters", filters));
  options.push_back(option("convs_per_stage", convs));
  add_kernels(options, "kernels", kernels);
  add_nnunet_decoder(options, shapes);
  return options;
}

Strings infer_resenc_unet(const ShapeView& shapes) {
  const std::string stem = "encoder.stem.convs.0.conv.weight", first = "encoder.stages.0.blocks.0.conv1.conv.weight";
  Strings options{option("in_channels", shapes.has(stem) ? shapes.size(stem, 1) : shapes.size(first, 1))};
  Sizes filters, blocks;
  Kernels kernels;
  for (int64_t stage = 0; stage < shapes.count("encoder.stages.", ".blocks.0.conv1.conv.weight"); ++stage) {
    const std::string blocks_of = concat("encoder.stages.", stage, ".blocks.");
    filters.push_back(shapes.size(blocks_of + "0.conv1.conv.weight", 0));
    kernels.push_back(shapes.kernel(blocks_of + "0.conv1.conv.weight"));
    blocks.push_back(shapes.count(blocks_of, ".conv1.conv.weight"));
  }
  options.push_back(option("filters", filters));
  options.push_back(option("convs_per_stage", blocks));
  add_kernels(options, "kernels", kernels);
  const bool channel = shapes.any_ends_with(".squeeze_excitation.fc1.weight");
  const bool spatial = shapes.any_ends_with(".squeeze_excitation.spatial.weight");
  if (channel || spatial) {
    options.push_back(concat("squeeze_excitation=", !spatial ? "channel" : channel ? "both" : "spatial"));
  }
  add_nnunet_decoder(options, shapes);
  return options;
}

// A residual unit with stride 1 has a residual of kernel 1, or none where the channels stay; other strides leave no
// trace, and the original's 2 is assumed. Empty where it is assumed everywhere.
Kernels seen_monai_strides(const ShapeView& shapes, const Kernels& kernels, const Sizes& channels) {
  Kernels strides;
  for (size_t level = 0; level + 1 < kernels.size(); ++level) {
    const std::string residual = monai_level(static_cast<int64_t>(level)) + "0.residual.weight";
    const bool keeps = channels[level] == channels[level + 1];
    const bool flat = kernels[level] != kOnes && shapes.has(residual) && shapes.kernel(residual) == kOnes;
    strides.push_back(flat || (keeps && !shapes.has(residual)) ? kOnes : Sizes{2, 2, 2});
  }
  return std::count(strides.begin(), strides.end(), kOnes) > 0 ? strides : Kernels{};
}

Strings infer_monai_unet(const ShapeView& shapes) {
  const int64_t units = shapes.count("model.0.conv.unit", ".conv.weight");
  const std::string down = units > 0 ? "0.conv.unit0.conv.weight" : "0.conv.weight", bottom = down.substr(2);
  const std::string up = units > 0 ? "2.0.conv.weight" : "2.conv.weight";
  Sizes filters;
  Kernels kernels, up_kernels;
  int64_t level = 0;
  for (; shapes.has(monai_level(level) + down); ++level) {
    filters.push_back(shapes.size(monai_level(level) + down, 0));
    kernels.push_back(shapes.kernel(monai_level(level) + down));
    up_kernels.push_back(shapes.kernel(monai_level(level) + up));
  }
  filters.push_back(shapes.size(monai_level(level) + bottom, 0));
  kernels.push_back(shapes.kernel(monai_level(level) + bottom));
  Strings options{option("in_channels", shapes.size("model." + down, 1)),
                  option("out_channels", units > 0 ? shapes.size("model.2.1.conv.unit0.conv.weight", 0)
                                                   : out_of_transposed(shapes, "model." + up)),
                  option("filters", filters), option("num_res_units", units)};
  add_kernels(options, "kernels", kernels);
  Sizes channels{shapes.size("model." + down, 1)};
  channels.insert(channels.end(), filters.begin(), filters.end());
  const Kernels strides = units > 0 ? seen_monai_strides(shapes, kernels, channels) : Kernels{};
  if (!strides.empty()) options.push_back(option("strides", strides));
  const bool transposed = shapes.has("model." + up);
  if (transposed) add_kernels(options, "up_kernels", up_kernels);
  add_monai_upsampling(options, shapes, transposed);
  // Scales without running statistics are those of a group norm or of an affine instance norm: that stays open.
  const bool batch = shapes.any_ends_with(".adn.N.running_mean"), scales = shapes.any_ends_with(".adn.N.weight");
  if (batch || !scales) options.push_back(batch ? "norm=batch" : "norm=instance");
  if (shapes.any_ends_with(".adn.A.weight")) options.push_back("activation=prelu");
  if (!shapes.has("model." + down.substr(0, down.size() - 6) + "bias")) options.push_back("conv_bias=false");
  return options;
}

Strings infer_monai_basic_unet3d(const ShapeView& shapes) {
  Sizes filters{shapes.size("conv_0.conv_0.conv.weight", 0)};
  for (int level = 1; level <= 4; ++level) {
    filters.push_back(shapes.size(concat("down_", level, ".convs.conv_0.conv.weight"), 0));
  }
  filters.push_back(shapes.size("upcat_1.convs.conv_0.conv.weight", 0));
  Strings options{option("in_channels", shapes.size("conv_0.conv_0.conv.weight", 1)),
                  option("out_channels", shapes.size("final_conv.weight", 0)), option("filters", filters)};
  if (shapes.any_ends_with(".adn.N.running_mean")) options.push_back("norm=batch");
  if (shapes.any_ends_with(".adn.A.weight")) options.push_back("activation=prelu");
  if (!shapes.has("conv_0.conv_0.conv.bias")) options.push_back("conv_bias=false");
  add_monai_upsampling(options, shapes, shapes.has("upcat_1.upsample.deconv.weight"));
  return options;
}

Strings infer_dynunet(const ShapeView& shapes) {
  std::vector<std::string> blocks{"input_block"};
  const int64_t downs = shapes.count("downsamples.", ".conv1.conv.weight");
  for (int64_t i = 0; i < downs; ++i) blocks.push_back(concat("downsamples.", i));
  blocks.push_back("bottleneck");
  Sizes filters;
  Kernels kernels, strides{kOnes};
  for (const std::string& block : blocks) {
    filters.push_back(shapes.size(block + ".conv1.conv.weight", 0));
    kernels.push_back(shapes.kernel(block + ".conv1.conv.weight"));
  }
  for (int64_t i = downs; i >= 0; --i) {  // the deepest first; kernels are the strides
    strides.push_back(shapes.kernel(concat("upsamples.", i, ".transp_conv.conv.weight")));
  }
  Strings options{option("in_channels", shapes.size("input_block.conv1.conv.weight", 1)),
                  option("out_channels", shapes.size("output_block.conv.conv.weight", 0)), option("filters", filters),
                  option("strides", strides)};
  add_kernels(options, "kernels", kernels);
  if (shapes.any_ends_with(".norm1.running_mean")) options.push_back("norm=batch");
  if (shapes.any_ends_with(".lrelu.weight")) options.push_back("activation=prelu");
  // The first block has no such convolution where it keeps its channels; the bottleneck always changes something.
  if (shapes.has("bottleneck.conv3.conv.weight")) options.push_back("residual=true");
  if (shapes.has("upsamples.0.transp_conv.conv.bias")) options.push_back("trans_bias=true");
  const int64_t heads = shapes.count("deep_supervision_heads.", ".conv.conv.weight");
  if (heads > 0) options.push_back("deep_supervision=true");
  if (heads > 0) options.push_back(option("deep_supervision_heads", heads));
  return options;
}

Strings infer_mednext(const ShapeView& shapes) {
  const std::vector<std::string> stages{"enc_block_0", "enc_block_1", "enc_block_2", "enc_block_3", "bottleneck",
                                        "dec_block_3", "dec_block_2", "dec_block_1", "dec_block_0"};
  Sizes expansion, blocks;
  for (const std::string& stage : stages) {
    const std::string conv = stage + ".0.conv2.weight";
    expansion.push_back(shapes.size(conv, 0) / std::max<int64_t>(1, shapes.size(conv, 1)));
    blocks.push_back(shapes.count(stage + ".", ".conv1.weight"));
  }
  Strings options{option("in_channels", shapes.size("stem.weight", 1)),
                  option("out_channels", out_of_transposed(shapes, "out_0.conv_out.weight")),
                  option("filters", Sizes{shapes.size("stem.weight", 0)}),
                  option("mednext_kernel", shapes.kernel("enc_block_0.0.conv1.weight").front()),
                  option("mednext_expansion", expansion),
                  option("convs_per_stage", blocks)};
  if (shapes.any_ends_with(".grn_gamma")) options.push_back("mednext_grn=true");
  if (shapes.has("out_1.conv_out.weight")) options.push_back("deep_supervision=true");
  return options;
}

Strings infer_rsunet(const ShapeView& shapes) {
  const std::string first = "input_conv.pre.1.weight";
  const int64_t downs = shapes.count("down_blocks.", ".conv.pre.1.weight");
  Sizes filters{shapes.size(first, 0)};
  Kernels strides{kOnes};
  int64_t flat = shapes.kernel(first).front() == 1 ? 1 : 0;
  for (int64_t i = 0; i < downs; ++i) {
    const std::string conv = concat("down_blocks.", i, ".conv.pre.1.weight");
    filters.push_back(shapes.size(conv, 0));
    if (flat == i + 1 && shapes.kernel(conv).front() == 1) ++flat;
    Sizes factors;  // the kernel of the interpolation back is 2f - f % 2; up_blocks.0 is the deepest
    for (const int64_t k : shapes.kernel(concat("up_blocks.", downs - 1 - i, ".up.weight"))) {
      factors.push_back(k % 2 == 0 ? k / 2 : (k + 1) / 2);
    }
    strides.push_back(factors);
  }
  Strings options{option("in_channels", shapes.size(first, 1)),
                  option("out_channels", shapes.size("output_head.weight", 0)), option("filters", filters),
                  option("strides", strides), option("depth_2d", flat)};
  // Its instance norms have no tensors, as if there were none: that stays open, and so does the number of groups.
  const bool batch = shapes.has("final_norm.norm.running_mean"), scales = shapes.has("final_norm.norm.weight");
  if (batch || scales) options.push_back(batch ? "norm=batch" : "norm=group");
  if (shapes.has("final_norm.act.weight")) options.push_back("activation=prelu");
  if (shapes.has("ds_heads.0.weight")) options.push_back("deep_supervision=true");
  return options;
}

Strings infer_openkbp_unet(const ShapeView& shapes) {
  return {option("in_channels", shapes.size("e.0.weight", 1)),
          option("out_channels", out_of_transposed(shapes, "o.weight")),
          option("filters", Sizes{shapes.size("e.0.weight", 0)})};
}

Strings infer_cascade_unet(const ShapeView& shapes) {
  Sizes filters;
  for (const char* net : {"net_A", "net_B"}) {
    for (int level = 1; level <= 5; ++level) {
      filters.push_back(shapes.size(concat(net, ".encoder.encoder_", level, ".0.single_conv.0.weight"), 0));
    }
  }
  return {option("in_channels", shapes.size("net_A.encoder.encoder_1.0.single_conv.0.weight", 1)),
          option("out_channels", shapes.size("conv_out_B.weight", 0)), option("filters", filters)};
}

}  // namespace vox
