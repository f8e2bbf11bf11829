#include "measure/gpu_predict.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "nets/initialize.h"
#include "train/learner.h"

namespace vox {
namespace {

constexpr double kFloatBytes = 4, kHalfBytes = 2;
constexpr double kContextGb = 0.6;     // CUDA's own share, and the libraries' code
constexpr double kUsableShare = 0.95;  // what allocators leave in pieces is lost

// Reads and writes of the logits by the value and gradient of a term, from bench/results on an H200: most are fused to
// three; skeletons and distances walk over the volume many times.
double passes_of(const LossTerm& term) {
  static const std::map<std::string, double> kPassesOfIteration{{"cldice", 60}, {"morph_skeleton", 60}};
  static const std::map<std::string, double> kPasses{{"surface_distance", 100},    {"boundary", 100},
                                                     {"hausdorff_dt", 200},        {"skeleton_recall", 100},
                                                     {"erosion_consistency", 150}, {"dvh", 30}};
  if (const auto found = kPassesOfIteration.find(term.name); found != kPassesOfIteration.end()) {
    constexpr double kUsualIterations = 3;
    const Tree* const given = term.params.find("iterations");
    return found->second * (given ? std::atof(given->scalar.c_str()) : kUsualIterations);
  }
  const auto found = kPasses.find(term.name);
  return found == kPasses.end() ? 3 : found->second;
}

WorkFormat format_of(const std::string& precision) {
  if (precision == "bf16-mixed") return WorkFormat::kBFloat;
  if (precision == "16-mixed") return WorkFormat::kHalf;
  return precision == "tf32" ? WorkFormat::kTf32 : WorkFormat::kFloat;
}

double loss_bytes(const Options& options, std::vector<std::string>& notes) {
  const double voxels = static_cast<double>(options.data.batch_size * options.data.patch_size.voxels());
  const double logits = voxels * static_cast<double>(std::max<int64_t>(1, options.model.out_channels)) * kFloatBytes;
  constexpr double kWithCoarser = 8.0 / 7;  // outputs of half the size, a quarter, ...
  if (options.loss.terms.empty()) return 6 * logits;
  double bytes = 0;
  for (const LossTerm& term : options.loss.terms) {
    if (term.name == "topology") {
      notes.push_back("the loss term topology waits for its pairs and is not part of the prediction");
      continue;
    }
    const double all = options.model.deep_supervision && term.deep_supervision ? kWithCoarser : 1;
    bytes += passes_of(term) * logits * all / static_cast<double>(std::max<int64_t>(1, term.every));
  }
  return bytes;
}

double optimizer_bytes(const TrainingOptions& training, double parameters) {
  const double slots = training.optimizer == "sgd" ? (training.momentum != 0 ? 1 : 0) : 2 + training.amsgrad;
  const bool half = format_of(training.precision) == WorkFormat::kHalf || training.precision == "bf16-mixed";
  const double collected = half ? 2 * kHalfBytes + 2 * kFloatBytes : 0;  // gradients and weights change their type
  const double average = training.ema > 0 ? 2 * kFloatBytes : 0;
  return parameters * (3 * kFloatBytes + 2 * kFloatBytes * slots + collected + average);
}

class RecipeOnGpus {
 public:
  explicit RecipeOnGpus(const Options& options) : options_(options) {
    const int64_t in = std::max<int64_t>(1, options.model.in_channels);
    const std::vector<int64_t> labels = options.data.labels.empty() ? std::vector<int64_t>{0, 1} : options.data.labels;
    if (options.model.in_channels == 0) notes_.push_back("model.in_channels is left to the data; one was assumed");
    options_.model = resolve_model(options, in, labels);
    const UndrawnWeights shapes_alone;
    network_ = make_network(options_.model, 0);
    network_->require_divisible(options.data.patch_size);
    table_ = network_->layer_table(options.data.patch_size, options.data.batch_size);
    VOX_CHECK(!table_.layers.empty(), "nothing can be predicted: ", options_.model.architecture,
              " does not tell its layers; measure it with `voxloom bench step` on the GPU itself");
    work_ = {.layers = table_.layers,
             .moved_elements = static_cast<double>(table_.moved_elements),
             .loss_bytes = loss_bytes(options_, notes_),
             .optimizer_bytes = optimizer_bytes(options.training, static_cast<double>(network_->parameters().count())),
             .accumulation = options.training.accumulate,
             .format = format_of(options.training.precision),
             .own_kernels = options.system.kernel_arch != "generic",
             .recomputes = options.model.use_checkpoint};
  }

  RecipePrediction facts() const {
    const double passes = options_.model.use_checkpoint ? 4 : 3;
    return {.batch = options_.data.batch_size,
            .accumulation = options_.training.accumulate,
            .gflop = 2 * passes * table_.gmac() * static_cast<double>(options_.training.accumulate),
            .parameters = network_->parameters().count(),
            .notes = notes_};
  }

  GpuPrediction on(const GpuSpec& gpu) const {
    GpuPrediction prediction{.gpu = gpu, .step = predict_step(work_, gpu)};
    prediction.memory = memory(options_.data.batch_size, gpu);
    prediction.memory_gb = static_cast<double>(prediction.memory.total()) * 1e-9;
    prediction.usable_gb = kUsableShare * gpu.memory_gib * 1.073741824 - kContextGb;
    prediction.fits = prediction.memory_gb <= prediction.usable_gb;
    // All that depends on the batch is proportional to it.
    const double one = static_cast<double>(memory(1, gpu).total()) * 1e-9,
                 more = static_cast<double>(memory(2, gpu).total()) * 1e-9 - one;
    const double largest = std::floor((prediction.usable_gb - one) / more + 1 + 1e-9);
    prediction.largest_batch = static_cast<int64_t>(std::max(0.0, largest));
    const auto samples = static_cast<double>(options_.data.batch_size * options_.training.accumulate);
    prediction.samples_per_s = 1e3 * samples / prediction.step.step_ms();
    return prediction;
  }

 private:
  MemoryEstimate memory(int64_t batch, const GpuSpec& gpu) const {
    Options sized = options_;
    sized.data.batch_size = batch;
    const LayerTable table = network_->layer_table(options_.data.patch_size, batch);
    MemoryEstimate estimate = estimate_memory(sized, network_->parameters(), table, MemoryOf::kGpu);
    const bool half = work_.format == WorkFormat::kHalf || work_.format == WorkFormat::kBFloat;
    const bool own = gpu.hopper && work_.own_kernels && work_.format == WorkFormat::kBFloat;
    if (half && !own && !options_.model.use_checkpoint)  // what our own convolutions read raw is kept for cuDNN's
      for (const ops::LayerRecord& layer : table.layers)
        if (layer.own_kernel && layer.taps > 1) estimate.activations += layer.input * 2;
    return estimate;
  }

  Options options_;
  std::vector<std::string> notes_;
  std::unique_ptr<Network> network_;
  LayerTable table_;
  GpuWork work_;
};

}  // namespace

RecipePrediction predict_recipe(const Options& options, const std::vector<GpuSpec>& gpus) {
  const RecipeOnGpus recipe(options);
  RecipePrediction prediction = recipe.facts();
  if (options.training.precision == "32" || options.training.precision == "tf32")
    prediction.notes.push_back("float32 steps are less well calibrated than bf16-mixed ones");
  for (const GpuSpec& gpu : gpus) prediction.gpus.push_back(recipe.on(gpu));
  return prediction;
}

}  // namespace vox
