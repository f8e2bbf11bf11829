// Every option of a recipe: the field gives type and default, the line in describe() its range, unit and meaning.
// Parsing, checking, `voxloom list options`, the reference page and the resolved file of a run all come from here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/shape.h"
#include "config/tree.h"

namespace vox {

struct SystemOptions {
  int64_t num_gpus = -1;        // -1: auto (one where there is one)
  int64_t num_cpus = 0;         // 0: all that this process may use
  int64_t compute_threads = 0;  // torch's own threads; 0: auto
  std::string kernel_arch = "auto";
};

struct ModelOptions {
  std::string architecture = "unet";
  int64_t in_channels = 0;   // 0: from the data
  int64_t out_channels = 0;  // 0: from the data and the loss
  std::vector<int64_t> filters{32, 64, 128, 256};
  std::vector<Extent3> strides;  // per stage; empty: 1 then 2s
  std::vector<Extent3> kernels;  // per stage; empty: 3s
  std::vector<int64_t> convs_per_stage{2};
  std::string norm = "instance";  // instance, batch, group, none
  std::string activation = "leaky_relu";
  double dropout = 0;
  bool deep_supervision = false;
  bool use_checkpoint = false;
  std::string mednext_size = "S";
  std::string file;     // a TorchScript module
  std::string weights;  // start from these
};

struct SynthOptions {  // data.synth: made under a lock where absent
  std::string kind;    // empty: no synthetic data
  int64_t count = 4;
  Extent3 size{128, 128, 128};
  int64_t seed = 0;
};

struct PreprocessStep {  // data.preprocess: [{name: clip, ...}, ...]
  std::string name;
  Tree params;
};

struct CaseEntry {  // data.cases: an explicit list
  std::string id, group, label, mask, split;
  std::vector<std::string> images;
};

struct DataOptions {
  std::string root;  // relative paths of this section start here; itself relative to the recipe
  SynthOptions synth;
  std::vector<std::string> images;  // one pattern per channel: glob, folder, or template with {id} or a CSV column
  std::string label, mask;          // patterns likewise; empty: none
  std::string csv;                  // cases from a table
  std::string id_column = "id", group_column;
  std::vector<CaseEntry> cases;
  std::string target = "segmentation";  // or regression
  int64_t ignore_label = -1;            // -1: none
  std::vector<int64_t> labels;          // the values a label may have; empty: those found
  std::string split = "kfold";          // kfold, column, explicit, none
  std::string split_column = "split";
  std::vector<std::string> train, validation, test;  // ids, for split: explicit
  int64_t folds = 5;
  std::string orientation = "keep";  // or RAS
  Extent3 patch_size{64, 64, 64};
  int64_t batch_size = 2;
  int64_t num_workers = -1;     // -1: auto
  int64_t prefetch_factor = 2;  // batches ready ahead of the trainer
  double cache_gb = 4;
  std::string cache_dir;           // chunked and preprocessed copies; empty: under the user's cache folder
  std::string placement = "auto";  // auto, gpu, host, disk
  std::string stage_dir;
  std::vector<PreprocessStep> preprocess;
  bool cache_preprocessed = true;
  std::string sampler = "uniform";  // uniform, foreground, balanced, labelled, grid
  double foreground_fraction = 0.33;
  double minimum_labelled = 0.0;
  int64_t patches_per_case = 1;
  std::string padding = "constant";  // constant, edge, reflect, none
  double pad_value = 0;
  std::string on_bad_case = "fail";    // or skip
  std::string patch_type = "float32";  // or bfloat16: type of the image slots
  std::string layout = "ncdhw";        // or ndhwc
};

struct Switch {  // a transform that can be turned off and happens with a probability
  bool enabled = false;
  double prob = 0.5;
};
struct FlipOptions : Switch {
  std::vector<int64_t> axes{0, 1, 2};
};
struct Rot90Options : Switch {
  std::vector<int64_t> axes{0};  // axes to turn about
};
struct RotateOptions : Switch {
  std::vector<double> degrees{-30, 30};
  std::vector<int64_t> axes{0, 1, 2};
};
struct ScaleOptions : Switch {
  std::vector<double> range{0.7, 1.4};
  bool per_axis = false;
};
struct ShiftOptions : Switch {
  std::vector<double> voxels{-8, 8};
};
struct ShearOptions : Switch {
  std::vector<double> range{-0.1, 0.1};
};
struct NoiseOptions : Switch {
  std::vector<double> sigma{0, 0.1};
};
struct BrightnessOptions : Switch {
  std::vector<double> factor{0.75, 1.25};
};
struct ContrastOptions : Switch {
  std::vector<double> factor{0.75, 1.25};
};
struct AugmentationOptions {
  bool enabled = true;
  FlipOptions flip;
  Rot90Options rot90;
  RotateOptions rotate;
  ScaleOptions scale;
  ShiftOptions shift;
  ShearOptions shear;
  NoiseOptions noise;
  BrightnessOptions brightness;
  ContrastOptions contrast;
};

struct LossTerm {
  std::string name;
  double weight = 1;
  int64_t every = 1;
  int64_t start_step = 0;
  Tree params;  // what the loss itself understands
};
struct LossOptions {
  std::vector<LossTerm> terms;                   // empty: dice + bce (or cross entropy), or mae for regression
  std::vector<double> deep_supervision_weights;  // empty: 1, 1/2, 1/4, ... normalised
};

struct TrainingOptions {
  int64_t max_epochs = 100;
  std::string iterations_per_epoch = "auto";  // a number, auto, or a duration such as 6h
  int64_t accumulate = 1;
  std::string precision = "32";  // 32, tf32, 16-mixed, bf16-mixed
  bool deterministic = false;
  int64_t seed = 0;
  int64_t fold = 0;
  std::string optimizer = "adamw";  // sgd, adam, adamw
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
  double min_lr = 0;
  std::vector<int64_t> milestones;  // epochs
  int64_t step_size = 30;           // epochs
  double gamma = 0.1;
  int64_t plateau_patience = 10;  // validations
  double one_cycle_peak = 0.3;    // fraction of the run
  double ema = 0;                 // decay; 0: off
  int64_t max_bad_steps = 10;
  std::string on_oom = "auto";  // auto, shrink, fail
  std::string cuda_graph = "auto";
  int64_t save_every = 0;  // epochs; 0: only last and best
  int64_t keep_last = 3;
  int64_t early_stop = 0;  // validations without improvement; 0: off
};

struct ValidationOptions {
  int64_t every = 1;             // epochs; 0: never
  std::string mode = "patches";  // or sliding_window
  int64_t patches = 16;
  std::string metric = "dice";  // best checkpoint by this
  std::string better = "auto";  // higher, lower
};

struct InferenceOptions {
  Extent3 window;  // zero: the patch size
  double overlap = 0.5;
  std::string blend = "gaussian";  // gaussian, constant
  double memory_gb = 4;
  int64_t batch_size = 1;
  double threshold = 0.5;
};

struct MonitorOptions {
  int64_t log_every = 10;  // steps
  bool tensorboard = true;
  bool images = true;
  int64_t image_every = 1;  // epochs
  bool gradient_histograms = false;
  bool report = true;
  std::string progress = "auto";  // auto, bar, lines, off
};

struct Options {
  SystemOptions system;
  ModelOptions model;
  DataOptions data;
  AugmentationOptions augmentation;
  LossOptions loss;
  TrainingOptions training;
  ValidationOptions validation;
  InferenceOptions inference;
  MonitorOptions monitor;
};

}  // namespace vox
