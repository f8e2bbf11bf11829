#include "train/predict_run.h"

#include <ATen/Parallel.h>
#include <torch/torch.h>

#include <algorithm>
#include <limits>
#include <set>

#include "base/file.h"
#include "base/hash.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "config/config.h"
#include "infer/predict.h"
#include "losses/loss.h"
#include "nets/weights.h"
#include "report/run_folder.h"
#include "train/checkpoint.h"
#include "train/learner.h"
#include "train/state.h"
#include "train/threads.h"

namespace vox {
namespace {

using Statistics = std::vector<std::array<double, 2>>;  // mean and deviation of each channel

struct Trained {
  fs::path path;
  Options options;
  ModelOptions model;
  TrainState state;
  std::unique_ptr<Network> network;
  bool imported = false;  // without a run: nobody knows its loss
};

// A member of an ensemble of which some had training cases with other statistics than the first, by which windows come
// normalised: other folds of a zscore over the data set. What lies outside of the volume is not a number in such a
// window, and becomes what each member was trained with.
class Renormalised : public Network {
 public:
  Renormalised(std::unique_ptr<Network> inner, const Statistics& from, const Statistics& to, double outside)
      : inner_(std::move(inner)), outside_(outside) {
    std::vector<float> factors, offsets;
    for (size_t i = 0; i < from.size(); ++i) {
      factors.push_back(static_cast<float>(from[i][1] / to[i][1]));
      offsets.push_back(static_cast<float>((from[i][0] - to[i][0]) / to[i][1]));
    }
    const at::Device device = inner_->parameters().device();
    factors_ = at::tensor(factors).to(device).view({1, -1, 1, 1, 1});
    offsets_ = at::tensor(offsets).to(device).view({1, -1, 1, 1, 1});
  }
  std::vector<at::Tensor> forward(const at::Tensor& image, const ForwardContext& context) override {
    return inner_->forward((image * factors_ + offsets_).nan_to_num_(outside_), context);
  }
  Extent3 divisor() const override { return inner_->divisor(); }
  ParameterSet& parameters() override { return inner_->parameters(); }
  const ParameterSet& parameters() const override { return inner_->parameters(); }
  void require_divisible(const Extent3& patch) const override { inner_->require_divisible(patch); }

 private:
  std::unique_ptr<Network> inner_;
  double outside_;
  at::Tensor factors_, offsets_;
};

// A file of `weights import`: the network's options, and a recipe without a run.
Trained load_imported(const SafetensorsFile& file, const PredictRequest& request, const at::Device& device) {
  Trained trained{file.path(), options_of(file.metadata(), file.path()), model_options(file.metadata()), {}, nullptr};
  trained.imported = true;
  trained.network = make_network_on(device, trained.model, trained.options.training);
  load_weights(*trained.network, file);
  if (request.say) request.say(concat("imported weights of ", file.path(), " (", trained.model.architecture, ")"));
  return trained;
}

Trained load_trained(const fs::path& model, const PredictRequest& request, const at::Device& device) {
  const fs::path chosen = checkpoint_of(model);
  const SafetensorsFile safetensors(chosen);
  if (safetensors.metadata().count("architecture") > 0) return load_imported(safetensors, request, device);
  const CheckpointFile file = read_checkpoint_file(chosen);
  const std::string path = file.path.string();
  Trained trained{chosen, options_of(file.metadata, path), {}, state_of(file.metadata, path), nullptr};
  Metadata described;
  for (const auto& [key, value] : file.metadata)
    if (key.starts_with("model.")) described[key.substr(6)] = value;
  trained.model = model_options(described);
  trained.network = make_network_on(device, trained.model, trained.options.training);
  restore_weights(file, trained.network->parameters(), Weights::kAverageIfAny);
  if (request.say) request.say(concat("weights of ", path, " (step ", trained.state.step, ")"));
  return trained;
}

bool knows_no_loss(const Trained& trained) {
  return trained.imported && trained.options.loss.terms.empty();
}

// Channels that no label was compared with (boundaries, affinities, distances) are no classes.
void tell_what_channels_are(DecodeOptions& decode, const Options& options, const ModelOptions& model) {
  const LossSet loss(options.loss, options.data, model.out_channels, model.heads);
  const LossSet::LabelChannels of_label = loss.label_channels();
  decode.value_channels = loss.value_channels();
  if (!of_label.channels.empty() || model.out_channels > 1 || !decode.value_channels.empty())
    decode.label_channels = of_label.channels;
  decode.softmax = of_label.softmax;
  decode.boundary_channels = loss.channels_against("boundary");
  decode.affinity_channels = loss.channels_against("affinity");
  decode.tanh_channels = loss.tanh_channels();
  if (of_label.foreground && decode.class_values.size() != 2) decode.class_values.clear();
  if (of_label.values.empty()) return;
  decode.class_values = of_label.values;
  decode.background_channel = of_label.values.front() == 0;
  if (!decode.background_channel) decode.class_values.insert(decode.class_values.begin(), 0);
}

void tell_what_channels_are(DecodeOptions& decode, const Trained& trained) {
  decode.class_values = trained.state.class_values;
  if (!knows_no_loss(trained)) tell_what_channels_are(decode, trained.options, trained.model);
}

bool mean_the_same_by_channels(const Trained& first, const Trained& other) {
  DecodeOptions a, b;
  tell_what_channels_are(a, first);
  tell_what_channels_are(b, other);
  return a == b || knows_no_loss(first) || knows_no_loss(other);
}

// All see the same windows, so they must have been trained on the same kind of input; only statistics of the data set
// may differ. Their outputs are averaged, so they must mean the same.
void require_alike(const Trained& first, const Trained& other) {
  const auto differ = [&](const char* what, const auto& a, const auto& b) {
    return concat("an ensemble needs networks alike in ", what, ": ", first.path.string(), " has ", a, " and ",
                  other.path.string(), " has ", b, "; predict with each alone");
  };
  VOX_CHECK(first.model.in_channels == other.model.in_channels,
            differ("input channels", first.model.in_channels, other.model.in_channels));
  VOX_CHECK(first.model.out_channels == other.model.out_channels,
            differ("output channels", first.model.out_channels, other.model.out_channels));
  VOX_CHECK(first.options.data.preprocess == other.options.data.preprocess &&
                first.options.data.orientation == other.options.data.orientation &&
                first.options.data.target == other.options.data.target,
            differ("data.preprocess, data.orientation and data.target", "its own", "others"));
  VOX_CHECK(mean_the_same_by_channels(first, other),
            differ("what their channels are (data.labels, loss.terms)", "its own", "others"));
}

// Input is normalised as in training, by the statistics of the training cases. Windows come normalised by those of an
// ensemble's first run.
void use_statistics_of_training(Trained& trained) {
  std::vector<PreprocessStep>& steps = trained.options.data.preprocess;
  const Statistics& channels = trained.state.input_statistics;
  if (steps.empty() || channels.empty() || steps.back().params.find("mean")) return;
  std::vector<Tree> means, deviations;
  for (const auto& [mean, deviation] : channels) {
    means.push_back(scalar_tree(shortest(mean)));
    deviations.push_back(scalar_tree(shortest(deviation)));
  }
  steps.back().params.members.emplace_back("mean", list_tree(means));
  steps.back().params.members.emplace_back("std", list_tree(deviations));
}

// Where members were normalised by statistics of their own. Imported weights have none.
void normalise_apart(std::vector<Trained>& all) {
  const Statistics first = all.front().state.input_statistics;
  const auto differs = [&](const Trained& one) {
    return one.state.input_statistics != first && one.state.input_statistics.size() == first.size();
  };
  if (std::none_of(all.begin(), all.end(), differs)) return;
  for (Trained& one : all) {
    const Statistics& own = differs(one) ? one.state.input_statistics : first;
    one.network = std::make_unique<Renormalised>(std::move(one.network), first, own, one.options.data.pad_value);
  }
  all.front().options.data.pad_value = std::numeric_limits<double>::quiet_NaN();
}

std::vector<Trained> load_all(const PredictRequest& request, const at::Device& device) {
  std::vector<fs::path> models;
  if (path_exists(request.model))
    models.push_back(request.model);
  else
    for (const std::string& part : split(request.model.string(), ',')) models.emplace_back(part);
  models.insert(models.end(), request.also.begin(), request.also.end());
  std::vector<Trained> all;
  for (const fs::path& model : models) {
    all.push_back(load_trained(model, request, device));
    require_alike(all.front(), all.back());
  }
  use_statistics_of_training(all.front());
  const bool own_input = std::none_of(request.overrides.begin(), request.overrides.end(),
                                      [](const std::string& text) { return text.starts_with("data.preprocess"); });
  Options& options = all.front().options;
  options.system.num_cpus = options.system.compute_threads = 0;  // of the machine that predicts, not that trained
  for (const std::string& text : request.overrides) {
    const bool known = text.starts_with("inference.") || text.starts_with("data.") || text.starts_with("system.");
    VOX_CHECK(known, "\"", text, "\": prediction takes keys of inference, data and system; the rest is the run's own");
  }
  if (!request.overrides.empty())
    options = parse_config(to_yaml(options), fs::current_path(), request.overrides).options;
  if (own_input) normalise_apart(all);
  return all;
}

std::string fingerprint_of(const std::vector<Trained>& all, const PredictRequest& request, const at::Device& device) {
  ContentHash hash;
  for (const Trained& one : all) {
    hash.add(static_cast<uint64_t>(fs::file_size(one.path)));  // and not its name, which has many forms
    for (const Parameter& parameter : one.network->parameters().all()) {
      const at::Tensor values = parameter.master.detach().cpu().contiguous();
      const auto* bytes = static_cast<const std::byte*>(values.const_data_ptr());
      hash.add(parameter.name()).add(uint64_t{crc32c({bytes, values.nbytes()})});
    }
  }
  Options options = all.front().options;
  options.inference.memory_gb = 1;  // changes how, not what
  hash.add(to_yaml(options)).add(device.str()).add(static_cast<uint64_t>(at::get_num_threads()));
  hash.add(concat(request.overlap.value_or(-1), ' ', request.threshold.value_or(-1), ' ', request.probabilities, ' ',
                  request.tta));
  return hash.hex();
}

std::vector<int64_t> indices_of_split(const Dataset& dataset, const std::string& split) {
  if (split == "train") return dataset.train;
  if (split == "validation") return dataset.validation;
  VOX_CHECK(split == "test", "--split is \"", split, "\"; it is train, validation or test");
  return dataset.test;
}

// A file may open and yet hold what training could not use; nobody who asks for a split means such a case.
bool was_left_out(const Trained& trained, const std::string& id) {
  const std::vector<std::string>& skipped = trained.state.skipped_cases;
  return trained.options.data.on_bad_case == "skip" &&
         std::find(skipped.begin(), skipped.end(), utf8(id)) != skipped.end();
}

// The cases to predict, alone in a data set of their own, so that no other volume is read.
Dataset wanted_cases(const PredictRequest& request, const Trained& trained) {
  const Options& options = trained.options;
  if (request.split.empty()) return dataset_of_inputs(request.inputs, options.data);
  const Dataset all = make_dataset(options.data, options.training.fold, static_cast<uint64_t>(options.training.seed));
  Dataset wanted;
  for (const int64_t index : indices_of_split(all, request.split)) {
    if (const std::string& id = all.cases[static_cast<size_t>(index)].id; was_left_out(trained, id)) {
      if (request.say) request.say(concat("case ", id, " is left out, as data.on_bad_case says: training left it out"));
      continue;
    }
    wanted.test.push_back(static_cast<int64_t>(wanted.cases.size()));
    wanted.cases.push_back(all.cases[static_cast<size_t>(index)]);
  }
  VOX_CHECK(!wanted.cases.empty(), "the ", request.split, " split of the run has no case to predict");
  return wanted;
}

void tell_of_other_settings(const Options& own, const PredictRequest& request) {
  if (!request.recipe || !request.say) return;
  for (const OptionDifference& difference : differences(own, *request.recipe))
    if (difference.key.starts_with("inference."))
      request.say(concat("note: ", difference.key, " is ", difference.after, " in the recipe, but a run predicts by ",
                         "its own settings, where it is ", difference.before,
                         "; name it behind the command to change it"));
}

// By their ids as UTF-8. Checkpoints name them, and other data than theirs, or those of a checkpoint that does not, are
// split again.
std::set<std::string> learned_cases(const Trained& trained, const PredictRequest& request) {
  const bool other_data = std::any_of(request.overrides.begin(), request.overrides.end(),
                                      [](const std::string& text) { return text.starts_with("data."); });
  const std::vector<std::string>& named = trained.state.training_cases;
  if (!other_data && !named.empty()) return {named.begin(), named.end()};
  std::set<std::string> learned;
  try {
    const Options options = parse_config(to_yaml(trained.options), fs::current_path(), request.overrides).options;
    const Dataset own = make_dataset(options.data, options.training.fold, static_cast<uint64_t>(options.training.seed));
    for (const int64_t index : own.train) learned.insert(utf8(own.cases[static_cast<size_t>(index)].id));
  } catch (const Error&) {  // its data are not here any more
  }
  return learned;
}

// Of an ensemble of folds, each member but one was trained on the cases that a split of the first one holds out; and
// where there are other cases now than in the training, so may be the split.
void tell_of_trained_cases(const std::vector<Trained>& all, const PredictRequest& request, const Dataset& wanted) {
  if (request.split.empty() || request.split == "train" || !request.say) return;
  for (const Trained& one : all) {
    const std::set<std::string> learned = learned_cases(one, request);
    const auto count = std::count_if(wanted.cases.begin(), wanted.cases.end(),
                                     [&](const Case& item) { return learned.contains(utf8(item.id)); });
    if (count > 0)
      request.say(concat("note: ", one.path.string(), " was trained on ", count, " of the ", wanted.cases.size(),
                         " cases of this ", request.split, " split; scores on them are too good"));
  }
}

Mirroring common_mirroring(const std::vector<Trained>& all) {
  std::vector<const AugmentationOptions*> trained;
  for (const Trained& one : all) trained.push_back(&one.options.augmentation);
  return mirroring_of(trained);
}

PredictOptions predict_options(const PredictRequest& request, const Trained& trained) {
  const InferenceOptions& inference = trained.options.inference;
  PredictOptions options{.folder = request.output, .window = window_options(trained.options), .output = {}};
  if (request.overlap) options.window.overlap = *request.overlap;
  const double overlap = options.window.overlap;
  VOX_CHECK(overlap >= 0 && overlap < 1, "--overlap is ", overlap, "; expected 0 to below 1");
  if (request.tta) require_mirrorable(trained.options.loss);
  if (request.tta && options.window.augment == Augment::kNone) options.window.augment = Augment::kMirror;
  options.output.decode.output = request.probabilities ? Output::kProbabilities : Output::kLabels;
  options.output.decode.regression = trained.options.data.target == "regression";
  options.output.decode.threshold = inference.threshold;
  tell_what_channels_are(options.output.decode, trained);
  options.output.orientation = trained.options.data.orientation;
  options.output.format = inference.format.starts_with('.') ? inference.format.substr(1) : inference.format;
  if (!request.probabilities) options.output.postprocess = inference.postprocess;
  if (request.threshold) use_threshold(options.output, *request.threshold);
  const DecodeOptions& decode = options.output.decode;
  const int64_t of_label = std::ssize(decode.label_channels_of(trained.model.out_channels));
  const bool cuts = decode.labels() && of_label > 0 && decode.implies_background(of_label);
  const bool chain_cuts = decode.labels() && PostChain(options.output.postprocess).wants_probabilities();
  if (request.threshold && !cuts && !chain_cuts && request.say)
    request.say("note: --threshold cuts labels where no channel is the background's; nothing is cut here");
  if (!request.threshold && chain_cuts && inference.threshold != InferenceOptions{}.threshold && request.say)
    request.say(concat("note: inference.threshold=", inference.threshold, " cuts nothing here: ",
                       options.output.postprocess.front().name, " of inference.postprocess has a level of its own"));
  options.mask = {inference.mask, trained.options.data.root};
  if (!inference.skip_below.empty()) options.skip_below = static_cast<float>(inference.skip_below.front());
  options.submission = submission_from_name(inference.submission);
  options.memory_bytes = static_cast<int64_t>(inference.memory_gb * static_cast<double>(int64_t{1} << 30));
  options.input_channels = trained.model.in_channels;
  options.output_channels = trained.model.out_channels;
  return options;
}

}  // namespace

void require_fitting_postprocess(const Options& options) {
  const PostChain chain(options.inference.postprocess);
  if (chain.empty() || options.model.out_channels == 0) return;
  DecodeOptions decode;
  decode.regression = options.data.target == "regression";
  tell_what_channels_are(decode, options, options.model);
  require_fitting(chain, decode, options.model.out_channels, {1, 1, 1});
}

std::filesystem::path checkpoint_of(const std::filesystem::path& model) {
  VOX_CHECK(path_exists(model), "there is no run or checkpoint ", model.string());
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
  const at::Device device = choose_device(request.device, SystemOptions{});
  const std::vector<Trained> all = load_all(request, device);
  const Trained& first = all.front();
  std::vector<Network*> networks;
  for (const Trained& one : all) networks.push_back(one.network.get());
  const ThreadPlan threads = plan_threads(first.options, device.is_cpu() ? ComputeOn::kCpu : ComputeOn::kGpu);
  // Reading takes little beside computing.
  at::set_num_threads(first.options.system.compute_threads > 0 ? threads.compute : threads.cpus);
  tell_of_other_settings(first.options, request);
  Dataset dataset = wanted_cases(request, first);
  tell_of_trained_cases(all, request, dataset);
  PredictOptions options = predict_options(request, first);
  if (options.window.augment != Augment::kNone) options.window.mirroring = common_mirroring(all);
  std::vector<PredictedCase> result;
  for (Case& one : dataset.cases) {
    require_other_file(options, one);
    result.push_back({one.id, one.label, {}});
    one.label.clear();  // not needed here, and may be missing
    if (first.options.inference.mask != "case") one.mask.clear();
  }
  DataOptions data = first.options.data;
  data.label.clear();
  data.mask.clear();
  data.stage_dir.clear();  // each volume is read once
  ThreadPool pool(threads.cpus);
  options.fingerprint = fingerprint_of(all, request, device);
  options.leaves_out_bad_cases = !request.split.empty() && data.on_bad_case == "skip";
  PredictProgress progress{.say = request.say, .window = request.window};
  progress.written = [&](const std::string& id, const std::filesystem::path& file) {
    for (PredictedCase& one : result)
      if (one.id == id) one.file = file;
    if (request.say) request.say(concat("wrote ", file.string()));
  };
  predict_cases(networks, dataset, data, pool, options, progress);
  std::erase_if(result, [](const PredictedCase& one) { return one.file.empty(); });
  return result;
}

}  // namespace vox
