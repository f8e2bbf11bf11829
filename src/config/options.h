// Every option of a recipe, one header a section: the field gives type and default, the line in describe() its range,
// unit and meaning. Parsing, checking, `voxloom list options`, the reference page and the resolved file of a run all
// come from here.
#pragma once

#include "config/augmentation_options.h"
#include "config/data_options.h"
#include "config/inference_options.h"
#include "config/loss_options.h"
#include "config/model_options.h"
#include "config/monitor_options.h"
#include "config/system_options.h"
#include "config/training_options.h"
#include "config/validation_options.h"

namespace vox {

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

  void describe(Visitor& v) {
    v.section("system", system);
    v.section("model", model);
    v.section("data", data);
    v.section("augmentation", augmentation);
    v.section("loss", loss);
    v.section("training", training);
    v.section("validation", validation);
    v.section("inference", inference);
    v.section("monitor", monitor);
  }
  bool operator==(const Options&) const = default;
};

}  // namespace vox
