#pragma once

#include "config/visitor.h"

namespace vox {

struct HeadOptions {  // consecutive channels of the output under one name, for loss terms and post-processing
  std::string name;
  int64_t channels = 1;

  void describe(Visitor& v) {
    v.field("name", name, {.meaning = "What loss terms call these channels"});
    v.field("channels", channels, {.meaning = "How many", .min = 1, .max = 65536});
  }
  bool operator==(const HeadOptions&) const = default;
};

struct ModelOptions {
  std::string architecture = "unet";
  int64_t in_channels = 0;          // 0: from the data
  int64_t out_channels = 0;         // 0: from the data and the loss
  std::vector<HeadOptions> heads;   // in the order of the channels; empty: one without a name
  std::vector<int64_t> filters;     // empty: the architecture's own
  std::vector<Extent3> strides;     // per stage; empty: 1 then 2s
  std::vector<Extent3> kernels;     // per stage; empty: 3s
  std::vector<Extent3> up_kernels;  // of monai_unet, per stage; empty: 3s
  std::vector<int64_t> convs_per_stage;
  std::vector<int64_t> decoder_convs;
  std::string norm = "auto";
  int64_t norm_groups = 8;
  std::string activation = "auto";
  std::string upsample = "deconv";
  bool conv_bias = true;
  bool trans_bias = false;
  double dropout = -1;  // -1: the architecture's own
  double output_scale = 1;
  int64_t added_channel = -1;  // -1: none
  int64_t num_res_units = 2;
  bool residual = false;
  std::string squeeze_excitation = "none";
  bool deep_supervision = false;
  int64_t deep_supervision_heads = 1;
  bool use_checkpoint = false;
  std::string mednext_size = "S";
  int64_t mednext_kernel = 3;
  std::vector<int64_t> mednext_expansion;
  bool mednext_grn = false;
  int64_t depth_2d = 0;
  std::string file;     // a TorchScript module
  std::string weights;  // start from these

  void describe(Visitor& v) {
    v.field("architecture", architecture, {.meaning = "Network, one of `voxloom list networks`"});
    v.field("in_channels", in_channels,
            {.meaning = "Channels of the image; auto is what the data has",
             .min = 1,
             .max = 65536,
             .named = NamedValue{"auto", 0}});
    v.field("out_channels", out_channels,
            {.meaning = "Channels of the prediction; auto follows from data and loss",
             .min = 1,
             .max = 65536,
             .named = NamedValue{"auto", 0}});
    v.list("heads", heads,
           {.meaning = "Names for consecutive channels of the prediction, so that loss terms can speak of them"});
    v.field("filters", filters,
            {.meaning = "Channels of each stage, finest first; one number is the first stage's width; empty is the "
                        "architecture's own",
             .min = 1,
             .max = 65536});
    v.field(
        "strides", strides,
        {.meaning = "Downsampling on entering each stage; empty is 1, then 2 everywhere. unet and resenc_unet with a "
                    "first one above 1 work coarser than they predict, in less time",
         .min = 1,
         .max = 64});
    v.field("kernels", kernels,
            {.meaning = "Kernel of each stage; empty is 3 everywhere", .unit = "voxels", .min = 1, .max = 63});
    v.field("up_kernels", up_kernels,
            {.meaning = "Kernel of each transposed convolution of monai_unet, finest first; empty is 3 everywhere",
             .unit = "voxels",
             .min = 1,
             .max = 63});
    v.field("convs_per_stage", convs_per_stage,
            {.meaning = "Convolutions (or blocks) of each stage; one number holds for all; empty is the architecture's "
                        "own",
             .min = 1,
             .max = 64});
    v.field(
        "decoder_convs", decoder_convs,
        {.meaning = "The same for the decoder, finest first; empty is the architecture's own", .min = 1, .max = 64});
    v.field("norm", norm,
            {.meaning = "Normalisation after each convolution; auto is the architecture's own",
             .choices = {"auto", "instance", "batch", "group", "none"}});
    v.field("norm_groups", norm_groups, {.meaning = "Groups of a group norm", .min = 1, .max = 65536});
    v.field("activation", activation,
            {.meaning = "Activation after each normalisation; auto is the architecture's own",
             .choices = {"auto", "leaky_relu", "relu", "prelu", "elu", "gelu", "silu"}});
    v.field("upsample", upsample,
            {.meaning = "How the decoder goes up: transposed convolutions, interpolation and a convolution, or, in "
                        "MONAI's networks, pixel shuffling",
             .choices = {"deconv", "trilinear", "nearest", "pixelshuffle"}});
    v.field("conv_bias", conv_bias,
            {.meaning = "Biases of the convolutions of unet, resenc_unet, monai_unet and monai_basic_unet3d"});
    v.field("trans_bias", trans_bias, {.meaning = "Biases of the transposed convolutions of dynunet"});
    v.field("dropout", dropout,
            {.meaning = "Share dropped in training; auto is the architecture's own",
             .min = 0,
             .max = 0.99,
             .named = NamedValue{"auto", -1}});
    v.field(
        "output_scale", output_scale,
        {.meaning = "Factor on all outputs, so that a network that is good at values of about 1 predicts large ones: "
                    "70 for a dose in Gy",
         .min = 0,
         .max = 1e9,
         .above_min = true});
    v.field("added_channel", added_channel,
            {.meaning = "Image channel, counted from 0, that is added to all outputs before output_scale: the network "
                        "predicts what is missing from a first guess that it is shown",
             .min = 0,
             .max = 65535,
             .named = NamedValue{"none", -1}});
    v.field("num_res_units", num_res_units,
            {.meaning = "Convolutions of a residual unit of monai_unet; 0 has no residuals", .min = 0, .max = 64});
    v.field("residual", residual, {.meaning = "Residual blocks in dynunet"});
    v.field(
        "squeeze_excitation", squeeze_excitation,
        {.meaning = "Gates on the residual blocks of resenc_unet", .choices = {"none", "channel", "spatial", "both"}});
    v.field("deep_supervision", deep_supervision, {.meaning = "Predict, and take the loss, at coarser stages too"});
    v.field("deep_supervision_heads", deep_supervision_heads,
            {.meaning = "How many coarser stages of dynunet deep supervision predicts at", .min = 1, .max = 64});
    v.field("use_checkpoint", use_checkpoint,
            {.meaning = "Recompute activations in the backward pass: less memory, more time"});
    v.field("mednext_size", mednext_size, {.meaning = "Size of a MedNeXt", .choices = {"S", "B", "M", "L"}});
    v.field("mednext_kernel", mednext_kernel,
            {.meaning = "Kernel of a MedNeXt", .unit = "voxels", .min = 1, .max = 15});
    v.field("mednext_expansion", mednext_expansion,
            {.meaning = "Expansion of each of the nine stages of a MedNeXt; empty is what its size has",
             .min = 1,
             .max = 64});
    v.field("mednext_grn", mednext_grn, {.meaning = "Global response normalisation in the blocks of a MedNeXt"});
    v.field("depth_2d", depth_2d,
            {.meaning = "Finest stages of rsunet whose kernels are flat in z", .min = 0, .max = 64});
    v.field("file", file,
            {.meaning = "TorchScript module to train instead of a built-in network", .form = Form::kPath});
    v.field("weights", weights,
            {.meaning = "Weights to start from, as safetensors; of a checkpoint those below model., not their average; "
                        "what is not in the file is drawn afresh",
             .form = Form::kPath});
  }
  bool operator==(const ModelOptions&) const = default;
};

}  // namespace vox
