#include "train/predict_run.h"

#include <ATen/Parallel.h>
#include <torch/torch.h>

#include "base/text.h"
#include "base/thread_pool.h"
#include "infer/predict.h"
#include "nets/weights.h"
#include "report/run_folder.h"
#include "train/checkpoint.h"
#include "train/learner.h"
#include "train/state.h"
#include "train/threads.h"

namespace vox {
namespace {

struct Trained {
  Options options;
  ModelOptions model;
  TrainState state;
  std::unique_ptr<Network> network;
};

// A file of `weights import`: the network's options, and a recipe without a run.
Trained load_imported(const SafetensorsFile& file, const PredictRequest& request, const at::Device& device) {
  Trained trained{options_of(file.metadata(), file.path()), model_options(file.metadata()), {}, nullptr};
  trained.network = make_network_on(device, trained.model, trained.options.training);
  load_weights(*trained.network, file);
  if (request.say) request.say(concat("imported weights of ", file.path(), " (", trained.model.architecture, ")"));
  return trained;
}

Trained load_trained(const PredictRequest& request, const at::Device& device) {
  const fs::path chosen = checkpoint_of(request.model);
  const SafetensorsFile safetensors(chosen);
  if (safetensors.metadata().count("architecture") > 0) return load_imported(safetensors, request, device);
  const CheckpointFile file = read_checkpoint_file(chosen);
  const std::string path = file.path.string();
  Trained trained{options_of(file.metadata, path), {}, state_of(file.metadata, path), nullptr};
  Metadata described;
  for (const auto& [key, value] : file.metadata)
    if (key.starts_with("model.")) described[key.substr(6)] = value;
  trained.model = model_options(described);
  trained.network = make_network_on(device, trained.model, trained.options.training);
  restore_weights(file, trained.network->parameters(), Weights::kAverageIfAny);
  if (request.say) request.say(concat("weights of ", path, " (step ", trained.state.step, ")"));
  return trained;
}

std::vector<int64_t> indices_of_split(const Dataset& dataset, const std::string& split) {
  if (split == "train") return dataset.train;
  if (split == "validation") return dataset.validation;
  VOX_CHECK(split == "test", "--split is \"", split, "\"; it is train, validation or test");
  return dataset.test;
}

// The cases to predict, alone in a data set of their own, so that no other volume is read.
Dataset wanted_cases(const PredictRequest& request, const Options& options) {
  if (request.split.empty()) return dataset_of_inputs(request.inputs);
  const Dataset all = make_dataset(options.data, options.training.fold, static_cast<uint64_t>(options.training.seed));
  Dataset wanted;
  for (const int64_t index : indices_of_split(all, request.split)) {
    wanted.test.push_back(static_cast<int64_t>(wanted.cases.size()));
    wanted.cases.push_back(all.cases[static_cast<size_t>(index)]);
  }
  VOX_CHECK(!wanted.cases.empty(), "the ", request.split, " split of the run has no case");
  return wanted;
}

PredictOptions predict_options(const PredictRequest& request, const Trained& trained) {
  PredictOptions options{.folder = request.output, .window = window_options(trained.options), .decode = {}};
  if (request.overlap) options.window.overlap = *request.overlap;
  options.window.mirrors = options.window.mirrors || request.tta;
  options.decode.output = request.probabilities ? Output::kProbabilities : Output::kLabels;
  options.decode.regression = trained.options.data.target == "regression";
  options.decode.threshold = request.threshold.value_or(trained.options.inference.threshold);
  options.orientation = trained.options.data.orientation;
  if (!request.probabilities) options.postprocess = trained.options.inference.postprocess;
  options.decode.class_values = trained.state.class_values;
  return options;
}

}  // namespace

std::filesystem::path checkpoint_of(const std::filesystem::path& model) {
  VOX_CHECK(fs::exists(model), "there is no run or checkpoint ", model.string());
  if (!fs::is_directory(model)) return model;
  const CheckpointFolder folder(RunFolder::open(model).checkpoints());
  if (fs::exists(folder.best())) return folder.best();
  VOX_CHECK(fs::exists(folder.last()), "the run ", model.string(), " has no checkpoint yet");
  return folder.last();
}

std::vector<PredictedCase> predict_run(const PredictRequest& request) {
  VOX_CHECK(request.inputs.empty() != request.split.empty(),
            "name volumes to predict, or a split of the run's own data "
            "with --split, one of both");
  Options system;
  const at::Device device = choose_device(request.device, system.system);
  Trained trained = load_trained(request, device);
  trained.options.system.num_cpus = 0;  // of the machine that predicts, not of the one that trained
  const ThreadPlan threads = plan_threads(trained.options, device.is_cpu() ? ComputeOn::kCpu : ComputeOn::kGpu);
  at::set_num_threads(threads.cpus);  // reading and computing take turns here
  Dataset dataset = wanted_cases(request, trained.options);
  std::vector<PredictedCase> result;
  for (Case& one : dataset.cases) {
    result.push_back({one.id, one.label, {}});
    one.label.clear();  // not needed here, and may be missing
    one.mask.clear();
  }
  DataOptions data = trained.options.data;
  data.label.clear();
  data.mask.clear();
  data.on_bad_case = "fail";
  ThreadPool pool(threads.cpus);
  const auto store = std::make_shared<Store>(dataset, data, pool);
  VOX_CHECK(store->image_channels() == trained.model.in_channels, "the network takes ", trained.model.in_channels,
            " channels but the input has ", store->image_channels(), "; write the channels of a case as a.tif,b.tif");
  PredictProgress progress{.window = request.window, .written = {}};
  progress.written = [&](const std::string& id, const std::filesystem::path& file) {
    for (PredictedCase& one : result)
      if (one.id == id) one.file = file;
    if (request.say) request.say(concat("wrote ", file.string()));
  };
  predict_cases(*trained.network, store, store->dataset().test, predict_options(request, trained), progress);
  return result;
}

}  // namespace vox
