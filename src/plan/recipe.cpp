#include "plan/recipe.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "plan/kept_size.h"
#include "plan/normalisation.h"
#include "plan/recipe_plan.h"

namespace vox {
namespace {

constexpr int64_t kLargestBatch = 8;

std::string spacing_text(const Spacing3& spacing) {
  return concat(rounded(spacing.z_mm, 6), " x ", rounded(spacing.y_mm, 6), " x ", rounded(spacing.x_mm, 6), " mm");
}

std::string shape_text(const Size3& shape) {
  return concat(rounded(shape[0], 5), " x ", rounded(shape[1], 5), " x ", rounded(shape[2], 5));
}

std::string root_of(const PlanRequest& request) {
  const fs::path root = request.layout.data.root;
  const fs::path folder = fs::absolute(request.recipe).lexically_normal().parent_path();
  const fs::path relative = root.lexically_relative(folder);
  const bool below = !relative.empty() && *relative.begin() != "..";
  return below ? relative.string() : root.string();
}

void write_head(RecipeText& out, const Plan& plan) {
  const Fingerprint& print = plan.print();
  out.remark(concat("Planned by `voxloom init", plan.nnunet ? " --like nnunet" : "", "` from ", print.cases.size(),
                    print.cases.size() == 1 ? " case" : " cases", ", laid out as ", plan.layout().title, "."));
  if (plan.nnunet)
    out.remark("Spacing, patch, pooling, features and batch follow nnU-Net's planning rules, the rest its trainer.");
  for (const std::string& remark : plan.layout().remarks) out.remark(remark);
  if (plan.nnunet && plan.network.low_resolution)
    out.remark(
        "nnU-Net would add a cascade from a coarser grid, because a patch covers little of a volume; this is its "
        "full-resolution plan alone.");
  if (plan.nnunet && print.relative_size < 1)
    out.remark(concat("nnU-Net crops volumes to what is not zero (median share here ", rounded(print.relative_size, 3),
                      "); the sizes were planned for that, the volumes stay whole."));
}

void write_cases(RecipeText& out, const DataOptions& data) {
  if (!data.csv.empty()) {
    out.line("csv", quoted(data.csv), "One row per case.");
    if (!data.group_column.empty())
      out.line("group_column", quoted(data.group_column),
               "Cases of one scroll look alike: they stay in one fold, else scores are too good.");
  }
  if (data.cases.empty()) {
    out.line("images", yaml(data.images), "One pattern per channel; {id} names the case.");
    out.line("label", quoted(data.label), "The partner of each image; every one was found.");
    if (!data.mask.empty()) out.line("mask", quoted(data.mask), "Only voxels inside count.");
    return;
  }
  out.line("cases", "", "The cases, one by one.");
  for (const CaseEntry& entry : data.cases) {
    std::string text =
        concat("{id: ", quoted(entry.id), ", images: ", yaml(entry.images), ", label: ", quoted(entry.label));
    if (!entry.group.empty()) text += concat(", group: ", quoted(entry.group));
    if (entry.fold >= 0) text += concat(", fold: ", entry.fold);
    if (!entry.split.empty()) text += concat(", split: ", entry.split);
    out.item(text + "}");
  }
}

void write_split(RecipeText& out, const Plan& plan) {
  const DataOptions& data = plan.layout().data;
  if (data.split == "kfold") {
    out.line("split", "kfold", "Each fold is held out once: training.fold=0, 1, ... Groups stay together.");
    out.line("folds", std::to_string(data.folds));
  } else if (data.split == "none") {
    out.line("split", "none", "One group of cases cannot be split: all of it is for training, nothing is held out.");
  } else {
    out.line("split", data.split,
             data.split == "folder" ? "As the folders say: train..., validation..., test..." : "As the list says.");
  }
  if (data.on_bad_case == "skip") out.line("on_bad_case", "skip", "Leaves out the cases named above.");
}

void write_labels(RecipeText& out, const Plan& plan) {
  const DataOptions& data = plan.layout().data;
  if (plan.regression) {
    out.line("target", "regression", "The label is a dose in Gy to predict, not a class.");
    return;
  }
  std::vector<int64_t> values;
  std::vector<std::string> texts;
  const auto total = static_cast<double>(plan.print().voxels);
  for (const auto& [value, count] : plan.labels) {
    values.push_back(value);
    const auto name = plan.layout().label_names.find(value);
    texts.push_back(concat(value,
                           name == plan.layout().label_names.end() ? "" : concat(" (", printable(name->second), ")"),
                           " ", rounded(100 * static_cast<double>(count) / total, 3), " %"));
  }
  if (data.ignore_label >= 0)
    out.line("ignore_label", std::to_string(data.ignore_label),
             concat("Nobody labelled these voxels (",
                    rounded(100 * static_cast<double>(plan.print().ignored_voxels) / total, 3),
                    " %): no loss and no score counts them."));
  const bool background = plan.labels.contains(0) && plan.labels.at(0) > 0;
  out.line("labels", yaml(values),
           concat("Found, of all voxels: ", join(texts, ", "),
                  background ? "." : ". 0 is a class all the same: Dice leaves the background out, no other."));
}

bool resampled(const Plan& plan) {
  const Fingerprint& print = plan.print();
  return !plan.regression && print.all_have_spacing() && !print.one_spacing();
}

std::vector<PlannedStep> steps_of(const Plan& plan) {
  if (plan.regression)
    return {{"{name: clip, min: 0, max: 4095}", "CT values beyond 12 bits are artefacts of a few patients."},
            {"{name: minmax}", "CT to 0 .. 1; masks are 0 and 1 already and stay."}};
  std::vector<PlannedStep> steps = plan_normalisation(plan.print(), plan.layout().channel_names, !plan.nnunet);
  const Spacing3& spacing = plan.network.spacing;
  if (resampled(plan))
    steps.push_back({concat("{name: resample, spacing: [", rounded(spacing.z_mm, 9), ", ", rounded(spacing.y_mm, 9),
                            ", ", rounded(spacing.x_mm, 9), "]}"),
                     "Spacings differ: the median of each axis, finer where slices are thick and few."});
  return steps;
}

void write_preprocess(RecipeText& out, const Plan& plan, const std::vector<PlannedStep>& steps) {
  const Fingerprint& print = plan.print();
  std::string why = "Done once per volume, and kept.";
  if (!plan.regression && !print.all_have_spacing())
    why += " Not every file says its spacing: nothing is resampled.";
  else if (!plan.regression && print.one_spacing())
    why += concat(" All volumes have ", spacing_text(plan.network.spacing), ": nothing is resampled.");
  if (steps.empty()) why += " Values stay as they are (noNorm), as the dataset asks.";
  out.line("preprocess", steps.empty() ? "[]" : "", why);
  for (const PlannedStep& step : steps) out.item(step.text, step.why);
}

void write_cache(RecipeText& out, const Plan& plan, const std::vector<PlannedStep>& steps) {
  std::vector<std::string> texts;
  for (const PlannedStep& step : steps) texts.push_back(step.text);
  const int64_t bytes = kept_bytes(plan.print(), texts);
  const double gb = static_cast<double>(bytes) * 1.1 / static_cast<double>(int64_t{1} << 30);
  out.line("cache_gb", std::to_string(std::clamp<int64_t>(static_cast<int64_t>(std::ceil(gb)), 1, 64)),
           concat("All volumes as stored take ", human_bytes(bytes),
                  gb > 64 ? "; what does not fit is kept in chunks on disk." : ": each is read once."));
}

void write_data(RecipeText& out, const Plan& plan) {
  const Topology& topology = plan.network.topology;
  out.section("data");
  out.line("root", quoted(root_of(plan.request)), "Relative to this file where the data lie below it.");
  write_cases(out, plan.layout().data);
  write_split(out, plan);
  write_labels(out, plan);
  if (!plan.print().turned.empty())
    out.line(
        "orientation", "RAS",
        concat("Volumes point different ways (", plan.print().turned, "): all are turned alike, predictions back."));
  const std::vector<PlannedStep> steps = steps_of(plan);
  write_preprocess(out, plan, steps);
  const std::string median = shape_text(plan.network.median_shape);
  out.line("patch_size", yaml(topology.patch),
           plan.regression ? "A whole patient: dose is planned from all of it."
                           : concat("The median volume is ", median, " voxels", resampled(plan) ? " then" : "",
                                    "; at most that, the same millimetres along each axis, within 8 GB of GPU memory, "
                                    "and a multiple of what pooling divides by (",
                                    topology.divisor, ")."));
  if (plan.regression)
    out.line("batch_size", std::to_string(plan.batch), "As the challenge's own training.");
  else
    out.line("batch_size", std::to_string(plan.batch),
             concat(plan.network.batch_by_memory, " would fit into 8 GB; ",
                    plan.nnunet ? "at most 5 % of the dataset in one batch, yet never fewer than two."
                                : "eight at most, so that a step stays short."));
  if (!plan.regression) {
    out.line("sampler", "foreground", "Rare labels must be seen: a third of the patches is centred on one.");
    out.line("foreground_fraction", "0.33");
  }
  write_cache(out, plan, steps);
}

// The preset knows thick slices by how few there are along z; nnU-Net, by how few along the axis of the coarsest
// voxels.
void write_slices(RecipeText& out, const Plan& plan) {
  const Spacing3& spacing = plan.network.spacing;
  const Extent3& patch = plan.network.topology.patch;
  int coarsest = 0;
  for (int axis = 1; axis < 3; ++axis)
    if (spacing[axis] > spacing[coarsest]) coarsest = axis;
  const auto few_along = [&](int axis) { return std::max({patch.z, patch.y, patch.x}) > 3 * patch[axis]; };
  const bool thick = few_along(coarsest);
  if (coarsest == 0 || (!thick && !few_along(0))) return;
  const std::string in_plane = !thick ? "[0, 1, 2]" : coarsest == 1 ? "[0, 2]" : "[0, 1]";
  out.line("rotate",
           thick ? concat("{axes: [", coarsest, "], degrees: [-180, 180]}") : "{axes: [0, 1, 2], degrees: [-30, 30]}",
           thick
               ? concat("Slices are thick along ", "zyx"[coarsest], ": they are turned and scaled in their own plane.")
               : concat("Few voxels along z, but the coarsest are along ", "zyx"[coarsest], ": no slices to keep to."));
  out.line("scale", concat("{axes: ", in_plane, "}"));
  out.line("low_resolution", concat("{axes: ", in_plane, "}"));
}

void write_augmentation(RecipeText& out, const Plan& plan) {
  const bool scroll = plan.layout().kind == LayoutKind::kVesuvius && !plan.nnunet;
  out.section("augmentation");
  out.line("preset",
           plan.regression ? "dose"
           : scroll        ? "scroll_heavy"
                           : "nnunet",
           plan.regression ? "Flips, turns by the beams' 40 degrees, shifts that keep the mask in sight."
           : scroll ? "Sheets have no preferred direction, and scans differ: turns, bends and changes of contrast."
                    : "Turns, scales, noise, blur, brightness, contrast, resolution, gamma and mirrors, as nnU-Net "
                      "draws them.");
  if (plan.regression)
    out.line("flip", "{prob: 0.5, swap_channels: []}",
             "Parotids keep their channels: planners spare one more than the other, and swapped they were predicted "
             "1 Gy off.");
  else if (!scroll)
    write_slices(out, plan);
}

void write_model(RecipeText& out, const Plan& plan) {
  const NetworkPlan& network = plan.network;
  out.section("model");
  out.line("architecture", "unet", "nnU-Net's plain U-Net: two convolutions a stage, instance norm, leaky ReLU.");
  out.line("in_channels", std::to_string(plan.print().channels), "What the images have.");
  out.line("out_channels", std::to_string(plan.outputs),
           plan.regression ? "One value a voxel."
           : plan.binary   ? "One probability: foreground or not."
                           : "One per label.");
  out.line("filters", yaml(network.features), "Doubled from stage to stage, at most 320.");
  out.line("strides", yaml(network.topology.strides),
           "An axis is halved while it has 8 voxels and its voxels are not twice as large as the smallest.");
  if (plan.anisotropic)
    out.line("kernels", yaml(network.topology.kernels),
             "Thick slices are not mixed before the other axes are as coarse as they are.");
  if (plan.regression)
    out.line("output_scale", "70", "The prescribed dose: the network itself predicts values of about 1.");
  const bool deep = network.topology.strides.size() > 2 && !plan.regression;
  out.line("deep_supervision", deep ? "true" : "false",
           deep ? "Coarser stages learn from the label too." : "Nothing is learnt at coarser stages.");
}

// nnU-Net gives every label of the description an output, though no case may have it.
std::map<int64_t, int64_t> labels_of(const PlanRequest& request) {
  std::map<int64_t, int64_t> labels = request.print.labels;
  if (request.style == PlanStyle::kNnunet)
    for (const int64_t value : request.layout.label_values)
      if (value != request.layout.data.ignore_label) labels.try_emplace(value, 0);
  return labels;
}

Plan make_plan(const PlanRequest& request) {
  const Layout& layout = request.layout;
  Plan plan{.request = request, .network = {}, .labels = labels_of(request)};
  plan.regression = layout.data.target == "regression";
  plan.nnunet = request.style == PlanStyle::kNnunet;
  VOX_CHECK(!plan.nnunet || !plan.regression, layout.data.root,
            ": nnU-Net plans segmentations, and this is a dose to predict; leave --like out");
  const auto labels = static_cast<int64_t>(plan.labels.size());
  plan.binary = !plan.regression && !plan.nnunet && labels <= 2;
  plan.outputs = plan.regression || plan.binary ? 1 : std::max<int64_t>(2, labels);
  const bool ignored = plan.nnunet && layout.data.ignore_label >= 0;  // its estimate of memory counts that label too
  plan.network = plan_network(request.print.shapes(), std::max<int64_t>(2, labels + ignored));
  if (plan.regression) {  // measured to work: whole patients, five stages
    plan.network.topology = {
        {128, 128, 128}, {16, 16, 16}, {{1, 1, 1}, {2, 2, 2}, {2, 2, 2}, {2, 2, 2}, {2, 2, 2}}, {}};
    plan.network.features = {32, 64, 128, 256, 320};
  }
  const Topology& topology = plan.network.topology;
  VOX_CHECK(
      topology.strides.size() > 1, layout.data.root, ": the median volume is ", shape_text(plan.network.median_shape),
      " voxels of ", spacing_text(plan.network.spacing),
      ", too small for a U-Net: of the axes whose voxels are the smallest, or not twice as large, one alone needs "
      "12 voxels, or two need 8");
  plan.anisotropic = std::any_of(topology.kernels.begin(), topology.kernels.end(),
                                 [](const Extent3& kernel) { return kernel.voxels() < 27; });
  plan.batch = plan.nnunet       ? plan.network.batch
               : plan.regression ? 2
                                 : std::clamp<int64_t>(plan.network.batch_by_memory, 2, kLargestBatch);
  return plan;
}

}  // namespace

std::string plan_recipe(const PlanRequest& request) {
  const Plan plan = make_plan(request);
  RecipeText out;
  write_head(out, plan);
  write_data(out, plan);
  write_augmentation(out, plan);
  write_model(out, plan);
  write_learning(out, plan);
  return out.text();
}

}  // namespace vox
