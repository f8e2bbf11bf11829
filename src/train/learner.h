// What learns: network, loss and optimizer on their device, made from a recipe and its data.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "config/options.h"
#include "losses/loss.h"
#include "nets/network.h"
#include "pipeline/pipeline.h"
#include "train/optimizer.h"
#include "train/place.h"

namespace vox {

// "", "cpu", "cuda", "cuda:1". Empty: a GPU where there is one and system.num_gpus allows it, the first of several.
// Error where what is asked for is not there.
at::Device choose_device(const std::string& name, const SystemOptions& system);
// Why system.num_gpus cannot be had on this machine; empty: it can.
std::string missing_gpus(const SystemOptions& system);
// There is a GPU that was not forbidden, but this program was built without kernels for it.
bool leaves_a_gpu_alone(const SystemOptions& system);

// Which kernels torch may take: with training.deterministic those whose sums have one order, else the fastest, found by
// timing once for each shape.
void choose_kernels(const TrainingOptions& training);

void use_threads(int compute);  // of torch

// On a CPU: what a step frees stays with the program for the next one. Given back and fetched again, the pages of small
// networks' activations took an eighth of every step.
void keep_memory_between_steps(const at::Device& device);

// Channels in and out filled in from the data and the loss where the recipe leaves them open.
ModelOptions resolve_model(const Options& options, int64_t image_channels, const std::vector<int64_t>& label_values);

// Error where a term of the loss, or an option of one, is wrong whatever the data will be, or is not for several GPUs.
// Returns the terms' names.
std::vector<std::string> check_loss_terms(const Options& options);

// A network on its device, in its compute type and layout.
std::unique_ptr<Network> make_network_on(const at::Device& device, const ModelOptions& model,
                                         const TrainingOptions& training);

struct Learner {
  ModelOptions model;  // resolved
  std::unique_ptr<Network> network;
  std::unique_ptr<LossSet> loss;
  std::unique_ptr<Optimizer> optimizer;
  std::string partial_weights;  // what to say where model.weights fits in part or is of another function; else empty
};
Learner make_learner(const Options& options, const Store& store, const at::Device& device);

// A pipeline of training samples from sample number `first` on; of processes that train together each has the
// micro-batches whose turn is its own.
std::unique_ptr<Pipeline> training_pipeline(const std::shared_ptr<Store>& store, const Options& options, int64_t first,
                                            int64_t micro_batch, int threads, GatherOn gather_on = GatherOn::kHost,
                                            const BoxMemory& box_memory = {}, Place place = {});

struct WarmUp {
  int64_t micro_batch = 0;
  double step_s = 0;   // of a whole step without its optimizer
  std::string shrunk;  // what to say where the micro-batch had to be halved; else empty
};
// Runs forward and backward without changing a weight, with all terms that the run will have: finds the micro-batch
// that fits into the memory of a GPU. Then how long a step takes, with the terms of the first.
constexpr int64_t kNoEnd = std::numeric_limits<int64_t>::max();  // that is known yet
struct WarmUpRequest {
  Learner& learner;
  std::shared_ptr<Store> store;
  const Options& options;
  at::Device device;
  int64_t first_sample = 0;
  int64_t micro_batch = 0;  // to begin with
  int data_threads = 1;
  int64_t end_step = kNoEnd;  // of the run
  int rounds = 1;             // timed ones
};
WarmUp warm_up(const WarmUpRequest& request);

// Memory that torch has in use on a GPU, at its peak since the last call, in 1e9 bytes; absent on a CPU.
std::optional<double> gpu_peak_gb(const at::Device& device);

}  // namespace vox
