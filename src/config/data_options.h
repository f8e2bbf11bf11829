#pragma once

#include "config/visitor.h"

namespace vox {

struct SynthOptions {  // data.synth: made under a lock where absent
  std::string kind;    // empty: no synthetic data
  int64_t count = 4;
  Extent3 size{128, 128, 128};
  int64_t seed = 0;

  void describe(Visitor& v) {
    v.field("kind", kind, {.meaning = "Synthetic data to make where it is absent; empty is none"});
    v.field("count", count, {.meaning = "Volumes to make", .min = 1, .max = 1e6});
    v.field("size", size, {.meaning = "Size of each", .unit = "voxels", .min = 8, .max = 65536});
    v.field("seed", seed, {.meaning = "The same seed makes the same volumes", .min = 0});
  }
  bool operator==(const SynthOptions&) const = default;
};

struct PreprocessStep {  // data.preprocess: [{name: clip, ...}, ...]
  std::string name;
  Tree params;

  void describe(Visitor& v) { v.field("name", name, {.meaning = "Step to apply; its own options stand beside it"}); }
  bool operator==(const PreprocessStep&) const = default;
};

struct CaseEntry {  // data.cases: an explicit list
  std::string id, group, label, mask, split;
  std::vector<std::string> images;
  int64_t fold = -1;

  void describe(Visitor& v) {
    v.field("id", id, {.meaning = "Name of the case; empty is the name of its first image"});
    v.field("group", group, {.meaning = "Patient or scroll; cases of a group stay in one split"});
    v.field("images", images, {.meaning = "One file per channel, under data.root"});
    v.field("label", label, {.meaning = "File of the label, under data.root"});
    v.field("mask", mask, {.meaning = "File of the mask, under data.root"});
    v.field("split", split, {.meaning = "Split of the case: train, validation or test; empty is drawn"});
    v.field(
        "fold", fold,
        {.meaning = "Fold of the case where data.split is kfold, counted from 0; -1 is drawn", .min = -1, .max = 1e6});
  }
  bool operator==(const CaseEntry&) const = default;
};

struct DataOptions {
  std::string root;  // relative paths of this section start here; itself relative to the recipe
  SynthOptions synth;
  std::vector<std::string> images;  // one pattern per channel: glob, folder, or template with {id} or a CSV column
  std::string label, mask;          // patterns likewise; empty: none
  std::string csv;                  // cases from a table
  std::string id_column = "id", group_column;
  std::vector<CaseEntry> cases;
  std::string target = "segmentation";
  int64_t ignore_label = -1;    // -1: none
  std::vector<int64_t> labels;  // the values a label may have; empty: those found
  std::string split = "kfold";
  std::string split_column = "split";
  std::vector<std::string> train, validation, test;  // ids, for split: explicit
  int64_t folds = 5;
  int64_t split_seed = -1;  // -1: training.seed
  std::string orientation = "keep";
  Extent3 patch_size{64, 64, 64};
  int64_t batch_size = 2;
  int64_t num_workers = -1;     // -1: auto
  int64_t prefetch_factor = 2;  // batches ready ahead of the trainer
  double cache_gb = 4;
  std::string cache_dir;  // chunked and preprocessed copies; empty: under the user's cache folder
  double cache_days = 90;
  std::string placement = "auto";
  std::string stage_dir;
  std::vector<PreprocessStep> preprocess;
  bool cache_preprocessed = true;
  std::string sampler = "uniform";
  double foreground_fraction = 0.33;
  double minimum_labelled = 0.0;
  int64_t patches_per_case = 1;
  std::string padding = "constant";
  double pad_value = 0;
  std::string on_bad_case = "fail";
  std::string patch_type = "float32";  // type of the image slots
  std::string layout = "ncdhw";

  void describe(Visitor& v) {
    describe_cases(v);
    describe_split(v);
    describe_loading(v);
    describe_sampling(v);
  }
  bool operator==(const DataOptions&) const = default;

 private:
  void describe_cases(Visitor& v);
  void describe_split(Visitor& v);
  void describe_loading(Visitor& v);
  void describe_sampling(Visitor& v);
};

inline void DataOptions::describe_cases(Visitor& v) {
  v.field("root", root, {.meaning = "Folder that the patterns of this section start in", .form = Form::kPath});
  v.section("synth", synth);
  v.field("images", images,
          {.meaning = "One pattern per channel: a glob, a folder, or a template with {id} or a column of the table"});
  v.field("label", label, {.meaning = "Pattern of the labels; empty is none"});
  v.field("mask", mask, {.meaning = "Pattern of the masks; only voxels inside count; empty is none"});
  v.field("csv", csv, {.meaning = "Table with one row per case", .form = Form::kPath});
  v.field("id_column", id_column, {.meaning = "Column of the table that names a case"});
  v.field("group_column", group_column,
          {.meaning = "Column whose equal values stay in one split (patient, scroll); empty is none"});
  v.list("cases", cases, {.meaning = "Cases one by one, instead of patterns"});
  v.field("target", target,
          {.meaning = "What a label is: classes, or values to predict", .choices = {"segmentation", "regression"}});
  v.field("ignore_label", ignore_label,
          {.meaning = "Label value that no loss or score counts",
           .min = 0,
           .max = 4294967295.0,
           .named = NamedValue{"none", -1}});
  v.field("labels", labels,
          {.meaning = "Values a label may have; empty is those found", .min = 0, .max = 4294967295.0});
}

inline void DataOptions::describe_split(Visitor& v) {
  v.field("split", split,
          {.meaning = "How cases are split: folds by seed, a column, the lists below, the folder an image lies in "
                      "(train..., validation..., test...), or all for training",
           .choices = {"kfold", "column", "explicit", "folder", "none"}});
  v.field("split_column", split_column, {.meaning = "Column of the table that names the split"});
  v.field("train", train, {.meaning = "Ids for training, with split: explicit"});
  v.field("validation", validation, {.meaning = "Ids for validation, with split: explicit"});
  v.field("test", test, {.meaning = "Ids kept apart, with split: explicit"});
  v.field("folds", folds, {.meaning = "Folds of split: kfold; training.fold is held out", .min = 2, .max = 1000});
  v.field("split_seed", split_seed,
          {.meaning = "Seed of the folds; a number keeps the same cases held out whatever training.seed is, which auto "
                      "takes",
           .min = 0,
           .named = NamedValue{"auto", -1}});
  v.field("orientation", orientation,
          {.meaning = "Leave axes as stored, or turn every volume to RAS", .choices = {"keep", "RAS"}});
}

inline void DataOptions::describe_loading(Visitor& v) {
  v.field("num_workers", num_workers,
          {.meaning = "Threads that read and augment; auto shares out system.num_cpus",
           .unit = "threads",
           .min = 0,
           .max = 4096,
           .named = NamedValue{"auto", -1}});
  v.field("prefetch_factor", prefetch_factor,
          {.meaning = "Batches ready ahead of the trainer", .unit = "batches", .min = 1, .max = 1024});
  v.field("cache_gb", cache_gb,
          {.meaning = "Bound of the memory that holds volumes", .unit = "GiB", .min = 0, .max = 1e6});
  v.field(
      "cache_dir", cache_dir,
      {.meaning = "Folder of chunked and preprocessed copies; empty is the user's cache folder", .form = Form::kPath});
  v.field("cache_days", cache_days,
          {.meaning = "Copies in cache_dir that no run used for so long are removed; 0 keeps them",
           .unit = "days",
           .min = 0,
           .max = 1e5});
  v.field("placement", placement,
          {.meaning = "Where volumes live while training", .choices = {"auto", "gpu", "host", "disk"}});
  v.field("stage_dir", stage_dir,
          {.meaning = "Local or RAM disk that the dataset is copied to once; empty is none", .form = Form::kPath});
  v.list("preprocess", preprocess, {.meaning = "Steps applied once to each volume, in order"});
  v.field("cache_preprocessed", cache_preprocessed, {.meaning = "Keep preprocessed volumes in cache_dir"});
  v.field(
      "on_bad_case", on_bad_case,
      {.meaning = "A case that cannot be read ends the run, or is left out and listed", .choices = {"fail", "skip"}});
}

inline void DataOptions::describe_sampling(Visitor& v) {
  v.field("patch_size", patch_size,
          {.meaning = "Size of a patch; one number is a cube", .unit = "voxels", .min = 1, .max = 65536});
  v.field("batch_size", batch_size,
          {.meaning = "Patches in a batch, on each GPU", .unit = "patches", .min = 1, .max = 65536});
  v.field("sampler", sampler, {.meaning = "Where patches are cut, one of `voxloom list samplers`"});
  v.field("foreground_fraction", foreground_fraction,
          {.meaning = "Share of patches centred on foreground, with sampler: foreground", .min = 0, .max = 1});
  v.field("minimum_labelled", minimum_labelled,
          {.meaning = "Least labelled share of a patch, with sampler: labelled", .min = 0, .max = 1});
  v.field("patches_per_case", patches_per_case,
          {.meaning = "Patches drawn from a case on each visit", .unit = "patches", .min = 1, .max = 1e6});
  v.field("padding", padding,
          {.meaning = "What lies outside a volume; none makes a patch larger than its volume an error",
           .choices = {"constant", "edge", "reflect", "none"}});
  v.field("pad_value", pad_value, {.meaning = "Value outside, with padding: constant or none"});
  v.field("patch_type", patch_type, {.meaning = "Type of a batch's images", .choices = {"float32", "bfloat16"}});
  v.field("layout", layout, {.meaning = "Order of a batch's axes", .choices = {"ncdhw", "ndhwc"}});
}

}  // namespace vox
