#pragma once

#include "config/visitor.h"

namespace vox {

struct ModelOptions {
  std::string architecture = "unet";
  int64_t in_channels = 0;   // 0: from the data
  int64_t out_channels = 0;  // 0: from the data and the loss
  std::vector<int64_t> filters{32, 64, 128, 256};
  std::vector<Extent3> strides;  // per stage; empty: 1 then 2s
  std::vector<Extent3> kernels;  // per stage; empty: 3s
  std::vector<int64_t> convs_per_stage{2};
  std::string norm = "instance";
  std::string activation = "leaky_relu";
  double dropout = 0;
  bool deep_supervision = false;
  bool use_checkpoint = false;
  std::string mednext_size = "S";
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
    v.field("filters", filters,
            {.meaning = "Channels of each stage, finest first; one number is the first stage's width",
             .min = 1,
             .max = 65536,
             .min_items = 1});
    v.field("strides", strides,
            {.meaning = "Downsampling on entering each stage; empty is 1, then 2 everywhere", .min = 1, .max = 64});
    v.field("kernels", kernels,
            {.meaning = "Kernel of each stage; empty is 3 everywhere", .unit = "voxels", .min = 1, .max = 63});
    v.field("convs_per_stage", convs_per_stage,
            {.meaning = "Convolutions of each stage; one number holds for all", .min = 1, .max = 64, .min_items = 1});
    v.field("norm", norm,
            {.meaning = "Normalisation after each convolution", .choices = {"instance", "batch", "group", "none"}});
    v.field(
        "activation", activation,
        {.meaning = "Activation after each normalisation", .choices = {"leaky_relu", "relu", "prelu", "gelu", "silu"}});
    v.field("dropout", dropout, {.meaning = "Share of channels dropped in training", .min = 0, .max = 0.99});
    v.field("deep_supervision", deep_supervision, {.meaning = "Predict, and take the loss, at coarser stages too"});
    v.field("use_checkpoint", use_checkpoint,
            {.meaning = "Recompute activations in the backward pass: less memory, more time"});
    v.field("mednext_size", mednext_size, {.meaning = "Size of a MedNeXt", .choices = {"S", "B", "M", "L"}});
    v.field("file", file,
            {.meaning = "TorchScript module to train instead of a built-in network", .form = Form::kPath});
    v.field("weights", weights, {.meaning = "Weights to start from", .form = Form::kPath});
  }
  bool operator==(const ModelOptions&) const = default;
};

}  // namespace vox
