#pragma once

#include "config/visitor.h"

namespace vox {

struct PostOptions {  // inference.postprocess: [{name: threshold, level: 0.4}, ...]
  std::string name;
  Tree params;

  void describe(Visitor& v) {
    v.field("name", name, {.meaning = "Step, one of `voxloom list postprocess`; its own options stand beside it"});
  }
  bool operator==(const PostOptions&) const = default;
};

struct InferenceOptions {
  Extent3 window;  // zero: the patch size
  double overlap = 0.5;
  Extent3 shift;
  std::string blend = "gaussian";
  double memory_gb = 4;
  int64_t batch_size = 1;
  double threshold = 0.5;
  std::string tta = "none";
  std::string mask;                // empty: none
  std::vector<double> skip_below;  // empty: none
  std::string format = "tif";
  std::string submission = "none";
  std::vector<PostOptions> postprocess;

  void describe(Visitor& v) {
    v.field("window", window,
            {.meaning = "Size of a window; auto is data.patch_size",
             .unit = "voxels",
             .min = 1,
             .max = 65536,
             .named = NamedValue{"auto", 0}});
    v.field("overlap", overlap, {.meaning = "Share of a window that its neighbour covers", .min = 0, .max = 0.95});
    v.field(
        "shift", shift,
        {.meaning = "Each window moved by this much back and on along each axis, eight windows for one: averages over "
                    "what a network with strides makes of the same voxels at other places",
         .unit = "voxels",
         .min = 0,
         .max = 65536});
    v.field("blend", blend,
            {.meaning = "Weight of a voxel by its place in the window", .choices = {"gaussian", "constant", "bump"}});
    v.field("memory_gb", memory_gb,
            {.meaning = "Bound of the memory for input, windows and sums of a prediction, the network's own aside",
             .unit = "GiB",
             .min = 0,
             .max = 1e6,
             .above_min = true});
    v.field("batch_size", batch_size,
            {.meaning = "Windows, or variants of one by tta, at once", .unit = "windows", .min = 1, .max = 65536});
    v.field("threshold", threshold, {.meaning = "Probability from which a voxel is foreground", .min = 0, .max = 1});
    v.field("tta", tta,
            {.meaning =
                 "Average over the mirrorings that training drew (all eight where it drew none), or over these and the "
                 "quarter turns in the planes where the window is square",
             .choices = {"none", "mirror", "mirror_rotate"}});
    v.field("mask", mask,
            {.meaning = "Windows lie over the box of this mask, and those that hold none of its voxels are skipped and "
                        "predicted as 0: a file with {id} for the case, case (its data.mask), or channel:N of the "
                        "image (windows over all of it)"});
    v.field("skip_below", skip_below,
            {.meaning = "Windows whose voxels, as the network sees them, all lie below this value are skipped and "
                        "predicted as 0; empty is none",
             .max_items = 1});
    v.field("format", format, {.meaning = "Suffix of what is written: any format of `voxloom list formats`"});
    v.field("submission", submission,
            {.meaning = "Also write submission.zip as a challenge asks for it",
             .choices = {"none", "vesuvius", "openkbp"}});
    v.list("postprocess", postprocess, {.meaning = "Steps applied to the prediction of one class, in order"});
  }
  bool operator==(const InferenceOptions&) const = default;
};

}  // namespace vox
