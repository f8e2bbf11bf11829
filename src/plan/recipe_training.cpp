#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "plan/recipe_plan.h"

namespace vox {
namespace {

void write_loss(RecipeText& out, const Plan& plan) {
  out.section("loss");
  out.line("terms", "",
           plan.regression ? "Only voxels that may receive dose count."
                           : "Overlap and certainty, one as much as the other.");
  if (plan.regression) return out.item("{name: masked_mae}");
  const std::string batch = plan.nnunet && plan.network.low_resolution ? ", batch: true" : "";
  out.item(concat("{name: dice", plan.binary ? "" : ", background: false", batch, "}"),
           batch.empty() ? "" : "Over the whole batch: a patch is a small part of a volume and may lack a label.");
  out.item(plan.binary ? "{name: bce}" : "{name: cross_entropy}");
  const size_t stages = plan.network.topology.strides.size();
  if (plan.nnunet && stages > 2)
    out.line("deep_supervision_weights", yaml(supervision_weights(stages - 1)),
             "Half the weight from stage to coarser stage; the coarsest has none.");
}

// Predictions of labels that know their place in the world are written so that they know it too; those of a challenge
// as it wants them.
void write_format(RecipeText& out, const Plan& plan) {
  const LayoutKind kind = plan.layout().kind;
  if (kind == LayoutKind::kVesuvius || kind == LayoutKind::kOpenKbp)
    out.line("submission", kind == LayoutKind::kVesuvius ? "vesuvius" : "openkbp",
             "`predict` also writes submission.zip as the challenge takes it; none: it does not.");
  const DataOptions& data = plan.layout().data;
  const std::string& label = data.cases.empty() ? data.label : data.cases.front().label;
  for (const std::string suffix : {".nii.gz", ".nii", ".nrrd"})
    if (ends_with(label, suffix))
      return out.line("format", suffix.substr(1), "As the labels: predictions keep the spacing and the affine.");
}

void write_nnunet_training(RecipeText& out, const Plan& plan) {
  out.section("training");
  out.line("max_epochs", "1000", "nnU-Net's trainer, unchanged.");
  out.line("iterations_per_epoch", "250");
  out.line("optimizer", "sgd", "With Nesterov's momentum.");
  out.line("momentum", "0.99");
  out.line("nesterov", "true");
  out.line("lr", "0.01");
  out.line("weight_decay", "0.00003");
  out.line("schedule", "poly", "Falls to zero by the power 0.9.");
  out.line("poly_power", "0.9");
  out.line("clip_norm", "12");
  out.line("precision", "16-mixed", "As nnU-Net trains; bf16-mixed needs no loss scaling where the GPU has it.");
  out.section("validation");
  if (plan.held_out())
    out.line("patches", std::to_string(50 * plan.batch), "50 batches after each epoch, for the best checkpoint.");
  else
    out.line("every", "0", "Nothing is held out.");
  out.section("inference");
  out.line("overlap", "0.5", "Windows overlap by half, weighted by a gaussian, over all eight mirrorings.");
  out.line("blend", "gaussian");
  out.line("tta", "mirror");
  write_format(out, plan);
}

// How often patches show each place of the training volumes: on 40 small volumes, five folds, Dice was the same to
// 0.003 from 300 times to 1,200 and a hundredth lower after 6,000.
constexpr double kVisits = 600;
constexpr int64_t kEpochSteps = 250, kFewestEpochs = 4, kMostEpochs = 100;

double visits_an_epoch(const Plan& plan) {
  const DataOptions& data = plan.layout().data;
  const double held_out = data.split == "kfold" ? 1.0 / static_cast<double>(data.folds) : 0;
  const Size3& volume = plan.network.median_shape;
  const double patches = volume[0] * volume[1] * volume[2] / static_cast<double>(plan.network.topology.patch.voxels());
  const double trained = static_cast<double>(plan.print().cases.size()) * (1 - held_out) * std::max(1.0, patches);
  return static_cast<double>(kEpochSteps * plan.batch) / trained;
}

int64_t write_length(RecipeText& out, const Plan& plan) {
  const double visits = visits_an_epoch(plan);
  const double wanted = plan.regression ? kMostEpochs : std::ceil(kVisits / visits);
  const auto epochs = static_cast<int64_t>(std::clamp<double>(wanted, kFewestEpochs, kMostEpochs));
  out.line(
      "max_epochs", std::to_string(epochs),
      epochs == kMostEpochs
          ? "A start. iterations_per_epoch: 5m would make each of them five minutes long."
          : concat("Few volumes are learnt by heart if it takes longer: patches have then shown their every place ",
                   10 * std::lround(visits * static_cast<double>(epochs) / 10), " times."));
  out.line("iterations_per_epoch", plan.regression ? "auto" : std::to_string(kEpochSteps));
  return epochs;
}

void write_training(RecipeText& out, const Plan& plan) {
  out.section("training");
  const int64_t epochs = write_length(out, plan);
  out.line("optimizer", "adamw", "Little to tune; --like nnunet has the trainer of nnU-Net instead.");
  out.line("lr", "0.001");
  out.line("schedule", "cosine");
  out.line("warmup_steps", "100");
  out.line("clip_norm", "12", "Longer gradients are scaled down.");
  out.line("ema", "0.999", "An average of the weights validates and predicts: calmer than the last ones.");
  out.line("precision", "bf16-mixed", "Faster on a GPU, and no loss scaling; 32 is faster on most CPUs.");
  out.section("validation");
  if (plan.held_out())
    out.line("every", std::to_string(std::max<int64_t>(1, epochs / 20)), "Epochs.");
  else
    out.line("every", "0", "Nothing is held out.");
  if (plan.regression) out.line("metric", "mae", "In Gy, inside the mask.");
  if (!plan.regression && plan.held_out())
    out.line("mode", "sliding_window", "Whole held-out volumes: their mean Dice chooses the best checkpoint.");
  out.section("inference");
  out.line("overlap", plan.regression ? "0" : "0.5",
           plan.regression ? "A window is a whole patient." : "Windows overlap by half, weighted by a gaussian.");
  write_format(out, plan);
}

}  // namespace

void write_learning(RecipeText& out, const Plan& plan) {
  write_loss(out, plan);
  if (plan.nnunet)
    write_nnunet_training(out, plan);
  else
    write_training(out, plan);
}

}  // namespace vox
