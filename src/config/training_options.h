#pragma once

#include "config/visitor.h"

namespace vox {

struct TrainingOptions {
  int64_t max_epochs = 100;
  std::string iterations_per_epoch = "auto";  // a number, auto, or a duration such as 6h: config/iterations.h
  int64_t accumulate = 1;
  std::string precision = "32";
  bool deterministic = false;
  int64_t seed = 0;
  int64_t fold = 0;
  std::string optimizer = "adamw";
  double lr = 1e-3;
  double weight_decay = 1e-5;
  bool decay_norms_and_biases = true;
  double momentum = 0.9;
  bool nesterov = true;
  std::vector<double> betas{0.9, 0.999};
  double epsilon = 1e-8;
  bool amsgrad = false;
  bool keras_epsilon = false;
  double clip_norm = 12;  // 0: off
  std::string schedule = "poly";
  double poly_power = 0.9;
  int64_t warmup_steps = 0;
  double warmup_start = 0.01;  // of lr; never zero
  int64_t cooldown_steps = 0;  // the last ones
  double min_lr = 0;
  std::vector<int64_t> milestones;  // epochs
  int64_t step_size = 30;           // epochs
  double gamma = 0.1;
  int64_t plateau_patience = 10;  // validations
  double one_cycle_peak = 0.3;    // fraction of the run
  double ema = 0;                 // decay; 0: off
  double ema_warmup = 9;
  int64_t max_bad_steps = 10;
  std::string on_oom = "auto";
  std::string cuda_graph = "auto";
  int64_t save_every = 0;  // epochs; 0: only last and best
  int64_t keep_last = 3;
  int64_t early_stop = 0;  // validations without improvement; 0: off

  void describe(Visitor& v) {
    describe_run(v);
    describe_optimizer(v);
    describe_schedule(v);
    describe_safety(v);
  }
  bool operator==(const TrainingOptions&) const = default;

 private:
  void describe_run(Visitor& v);
  void describe_optimizer(Visitor& v);
  void describe_schedule(Visitor& v);
  void describe_safety(Visitor& v);
};

inline void TrainingOptions::describe_run(Visitor& v) {
  v.field("max_epochs", max_epochs, {.meaning = "Length of the run", .unit = "epochs", .min = 1, .max = 1e9});
  v.field("iterations_per_epoch", iterations_per_epoch,
          {.meaning =
               "Steps of an epoch: a number, auto (every case once) or how long an epoch is to take, as 6h, 90m, 30s",
           .unit = "steps",
           .form = Form::kIterations});
  v.field("accumulate", accumulate,
          {.meaning = "Batches whose gradients make one step", .unit = "batches", .min = 1, .max = 65536});
  v.field(
      "precision", precision,
      {.meaning = "Number format of the network's arithmetic", .choices = {"32", "tf32", "16-mixed", "bf16-mixed"}});
  v.field("deterministic", deterministic, {.meaning = "Only kernels whose sums have one order"});
  v.field("seed", seed, {.meaning = "Source of all chance", .min = 0});
  v.field("fold", fold, {.meaning = "Fold that is held out, with data.split: kfold", .min = 0, .max = 999});
}

inline void TrainingOptions::describe_optimizer(Visitor& v) {
  v.field("optimizer", optimizer, {.meaning = "Rule of the update", .choices = {"sgd", "adam", "adamw"}});
  v.field("lr", lr, {.meaning = "Learning rate at its peak", .min = 0, .max = 1e6, .above_min = true});
  v.field("weight_decay", weight_decay, {.meaning = "Pull of weights to zero", .min = 0, .max = 1e6});
  v.field("decay_norms_and_biases", decay_norms_and_biases, {.meaning = "Decay norms and biases too"});
  v.field("momentum", momentum, {.meaning = "Momentum of sgd", .min = 0, .max = 0.999999});
  v.field("nesterov", nesterov, {.meaning = "Nesterov's form of the momentum of sgd"});
  v.field("betas", betas,
          {.meaning = "Decay of Adam's two averages", .min = 0, .max = 0.9999999, .min_items = 2, .max_items = 2});
  v.field("epsilon", epsilon, {.meaning = "Adam's guard against division by zero", .min = 0, .max = 1});
  v.field("amsgrad", amsgrad, {.meaning = "Divide by the largest average seen so far"});
  v.field("keras_epsilon", keras_epsilon, {.meaning = "Add epsilon before the bias correction, as Keras does"});
  v.field("clip_norm", clip_norm,
          {.meaning = "Largest norm of the gradient; longer ones are scaled down; 0 is off", .min = 0});
  v.field("ema", ema,
          {.meaning = "Decay of the average of weights used for validation and prediction, less at the start; 0 is off",
           .min = 0,
           .max = 0.9999999});
  v.field("ema_warmup", ema_warmup,
          {.meaning = "w: at step t the average takes at least w / (w + 1 + t) of the weights, so that it forgets the "
                      "first ones and reaches over the last w-th part of the steps until ema does; 0 is off",
           .min = 0,
           .max = 1000});
}

inline void TrainingOptions::describe_schedule(Visitor& v) {
  v.field("schedule", schedule,
          {.meaning = "Course of the learning rate after the warm-up",
           .choices = {"poly", "cosine", "warmup_cosine", "step", "multistep", "plateau", "one_cycle", "constant"}});
  v.field("poly_power", poly_power, {.meaning = "Exponent of schedule: poly", .min = 0, .max = 100});
  v.field("warmup_steps", warmup_steps,
          {.meaning = "Steps over which the rate rises to its peak", .unit = "steps", .min = 0, .max = 1e12});
  v.field("warmup_start", warmup_start,
          {.meaning = "First rate of the warm-up, as a share of the peak", .min = 0, .max = 1, .above_min = true});
  v.field("cooldown_steps", cooldown_steps,
          {.meaning = "Last steps, over which the rate falls from what the schedule gives to min_lr along a line",
           .unit = "steps",
           .min = 0,
           .max = 1e12});
  v.field("min_lr", min_lr, {.meaning = "Lowest learning rate", .min = 0, .max = 1e6});
  v.field("milestones", milestones,
          {.meaning = "Epochs at which schedule: multistep multiplies by gamma", .unit = "epochs", .min = 0});
  v.field("step_size", step_size,
          {.meaning = "Epochs between the drops of schedule: step", .unit = "epochs", .min = 1, .max = 1e9});
  v.field("gamma", gamma, {.meaning = "Factor of each drop", .min = 0, .max = 1, .above_min = true});
  v.field("plateau_patience", plateau_patience,
          {.meaning = "Validations without improvement before schedule: plateau drops",
           .unit = "validations",
           .min = 0,
           .max = 1e9});
  v.field("one_cycle_peak", one_cycle_peak,
          {.meaning = "Where in the run schedule: one_cycle peaks", .min = 0, .max = 1, .above_min = true});
}

inline void TrainingOptions::describe_safety(Visitor& v) {
  v.field(
      "max_bad_steps", max_bad_steps,
      {.meaning = "Steps in a row without a finite gradient that end the run", .unit = "steps", .min = 1, .max = 1e9});
  v.field("on_oom", on_oom,
          {.meaning = "Out of GPU memory: halve the micro-batch where that changes nothing, always, or never",
           .choices = {"auto", "shrink", "fail"}});
  v.field("cuda_graph", cuda_graph, {.meaning = "Replay the step as CUDA graphs", .choices = {"auto", "on", "off"}});
  v.field("save_every", save_every,
          {.meaning = "Epochs between the checkpoints that stay; 0 is only last and best",
           .unit = "epochs",
           .min = 0,
           .max = 1e9});
  v.field("keep_last", keep_last,
          {.meaning = "Checkpoints of save_every that stay", .unit = "files", .min = 1, .max = 1e9});
  v.field("early_stop", early_stop,
          {.meaning = "Validations without improvement that end the run; 0 is off",
           .unit = "validations",
           .min = 0,
           .max = 1e9});
}

}  // namespace vox
