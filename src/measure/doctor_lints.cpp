// The checks of a recipe, one function each. They look at facts alone, so that a test can give any machine.
#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "measure/doctor_keys.h"
#include "measure/doctor_recipe.h"
#include "train/team.h"

namespace vox {
namespace {

// The command has what the recipe was looked at with, but for a key that it sets itself.
std::string prove(const RecipeFacts& recipe, const std::string& command, const std::string& arguments = "") {
  const std::string key = arguments.substr(0, arguments.find('=') + 1);
  std::string words = recipe.name;
  for (const std::string& change : recipe.changes)
    if (key.empty() || !change.starts_with(key)) words += " " + change;
  return concat("voxloom ", command, " ", words, arguments.empty() ? "" : " ", arguments);
}

int64_t gib(double count) {
  return static_cast<int64_t>(count * static_cast<double>(int64_t{1} << 30));
}

std::vector<Finding> lint_data(const RecipeFacts& recipe) {
  const DataFacts& data = recipe.data;
  const std::string proof = prove(recipe, "inspect");
  if (data.to_be_made)
    return {
        {"data", Outlook::kFine, "data.synth makes the volumes at the first use", prove(recipe, "train", "--dry-run")}};
  if (!data.problem.empty()) return {{"data", Outlook::kFails, data.problem, proof}};
  if (data.train == 0 && data.left_out > 0)
    return {{"data", Outlook::kFails, concat("no case is left for training: ", data.why_left_out), proof}};
  if (data.train == 0) return {{"data", Outlook::kFails, "no case is left for training; look at data.split", proof}};
  std::string counts = concat(data.train, " cases to train on, ", data.validation, " to validate, ",
                              human_bytes(data.stored_bytes), " of voxels");
  if (data.left_out > 0)
    counts += concat(" (", data.left_out, " left out as data.on_bad_case says, the first: ", data.why_left_out, ")");
  if (data.validation == 0 && recipe.config.options.validation.every > 0)
    return {{"data", Outlook::kHurts,
             counts + ": without validation cases there is no best checkpoint; hold some out with data.split", proof}};
  if (!data.network.empty() && recipe.config.options.data.stage_dir.empty())
    return {
        {"data", Outlook::kHurts,
         concat(counts, ", on the network (", data.network, "): copy them once to a local disk with data.stage_dir"),
         prove(recipe, "bench data")}};
  return {{"data", data.left_out > 0 ? Outlook::kHurts : Outlook::kFine, counts, proof}};
}

std::vector<Finding> lint_device(const RecipeFacts& recipe) {
  const int64_t wanted = recipe.config.options.system.num_gpus;
  const std::string proof = prove(recipe, "train", "--fast-dev-run");
  const std::string here = recipe.gpus > 0 ? "trains on one GPU" : "trains on the CPU";
  if (!recipe.device.empty() && recipe.device != "cpu" && recipe.gpus == 0)
    return {{"device", Outlook::kFails,
             concat("--device is ", recipe.device, ", but training can use no GPU here; take --device cpu"), proof}};
  if (!recipe.device.empty()) return {{"device", Outlook::kFine, here, proof}};
  if (wanted > 0 && recipe.gpus == 0)
    return {{"device", Outlook::kFails,
             concat("system.num_gpus is ", wanted, ", but training can use no GPU here; set it to 0 or auto"), proof}};
  if (wanted > recipe.gpus)
    return {{"device", Outlook::kFails,
             concat("system.num_gpus is ", wanted, ", but torch can use ", recipe.gpus, " here"), proof}};
  if (wanted > 1) return {{"device", Outlook::kFine, concat("trains on ", wanted, " GPUs, a process each"), proof}};
  return {{"device", Outlook::kFine, here, proof}};
}

std::vector<Finding> lint_workers(const RecipeFacts& recipe) {
  const Options& options = recipe.config.options;
  const int64_t workers = options.data.num_workers;
  const std::string proof = prove(recipe, "profile", "--data-only");
  const int cpus =
      options.system.num_cpus > 0 ? std::min<int>(recipe.cpus, static_cast<int>(options.system.num_cpus)) : recipe.cpus;
  if (workers < 0)
    return {{"workers", Outlook::kFine, concat("data.num_workers is auto: the ", cpus, " CPUs are shared out"), proof}};
  if (workers > recipe.cpus)
    return {{"workers", Outlook::kHurts,
             concat("data.num_workers is ", workers, " on ", recipe.cpus,
                    " CPUs: threads take turns and push the arithmetic aside; leave it out, or set it to ",
                    std::max(1, recipe.cpus - 1), " at most"),
             proof}};
  if (workers <= 1 && cpus >= 4)
    return {{"workers", Outlook::kHurts,
             concat("one thread reads and augments while ", cpus,
                    " CPUs may work: the network will wait for it; leave data.num_workers out"),
             proof}};
  return {{"workers", Outlook::kFine,
           concat(std::max<int64_t>(1, workers),
                  std::max<int64_t>(1, workers) == 1 ? " data thread on " : " data threads on ", cpus, " CPUs"),
           proof}};
}

std::vector<Finding> lint_prefetch(const RecipeFacts& recipe) {
  const int64_t prefetch = recipe.config.options.data.prefetch_factor;
  const std::string proof = prove(recipe, "profile", "data.prefetch_factor=2");
  if (prefetch <= 1)
    return {{"prefetch", Outlook::kHurts,
             "data.prefetch_factor is 1: one slow sample and the network waits; 2 to 4 even it out", proof}};
  return {{"prefetch", Outlook::kFine, concat(prefetch, " batches are made ahead"), proof}};
}

// What a step may use: the GPU's free memory, or on a CPU what the volumes leave.
int64_t step_memory(const RecipeFacts& recipe) {
  if (recipe.gpus > 0) return recipe.gpu_free_bytes;
  return recipe.memory_bytes - std::min(gib(recipe.config.options.data.cache_gb), recipe.data.stored_bytes);
}

std::vector<Finding> lint_batch(const RecipeFacts& recipe) {
  const Options& options = recipe.config.options;
  const int64_t batch = options.data.batch_size, effective = samples_of_step(options);
  const std::string sum = concat(
      "effective batch ", effective, " (", batch, batch == 1 ? " patch x " : " patches x ", options.training.accumulate,
      " accumulated", team_size(options.system) > 1 ? concat(" x ", team_size(options.system), " GPUs") : "", ")");
  std::vector<Finding> found;
  const bool known = recipe.network.problem.empty();
  if (batch == 1 && known && 2 * recipe.network.memory_doubled.total() < step_memory(recipe))
    found.push_back({"batch", Outlook::kHurts,
                     concat(sum, "; a batch of 2 needs about ", human_bytes(recipe.network.memory_doubled.total()),
                            " of ", human_bytes(step_memory(recipe)), " and is mostly faster per sample"),
                     prove(recipe, "bench step", "data.batch_size=2")});
  if (batch == 1 && options.model.norm == "batch")
    found.push_back({"batch", Outlook::kHurts,
                     concat(sum,
                            "; model.norm is batch, whose statistics then come from one patch: take instance norm, or "
                            "a larger batch (accumulation does not help)"),
                     prove(recipe, "train", "--dry-run")});
  if (found.empty()) found.push_back({"batch", Outlook::kFine, sum, prove(recipe, "train", "--dry-run")});
  return found;
}

std::vector<Finding> lint_precision(const RecipeFacts& recipe) {
  constexpr int kTensorCores = 70, kBfloat16 = 80;
  const std::string& precision = recipe.config.options.training.precision;
  const std::string proof = prove(recipe, "profile", "training.precision=bf16-mixed");
  const bool half = precision == "16-mixed" || precision == "bf16-mixed";
  if (recipe.gpus > 0 && precision == "32" && recipe.gpu_capability >= kTensorCores)
    return {{"precision", Outlook::kHurts,
             concat("training.precision is 32, and this GPU's tensor cores stay idle; ",
                    recipe.gpu_capability >= kBfloat16 ? "bf16-mixed" : "16-mixed", " uses them"),
             proof}};
  if (recipe.gpus > 0 && precision == "bf16-mixed" && recipe.gpu_capability > 0 && recipe.gpu_capability < kBfloat16)
    return {{"precision", Outlook::kHurts, "this GPU has no fast bfloat16; take 16-mixed", proof}};
  if (recipe.gpus == 0 && half)
    return {{"precision", Outlook::kHurts,
             concat("training.precision is ", precision,
                    ", and a CPU computes it in float32 with rounding on top: no gain; set it to 32"),
             prove(recipe, "profile", "training.precision=32")}};
  return {{"precision", Outlook::kFine, concat("training.precision is ", precision), proof}};
}

std::vector<Finding> lint_network(const RecipeFacts& recipe) {
  const std::string proof = prove(recipe, "train", "--dry-run");
  if (!recipe.network.problem.empty()) return {{"network", Outlook::kFails, recipe.network.problem, proof}};
  const int64_t needed = recipe.network.memory.total(), there = step_memory(recipe);
  const std::string sentence =
      concat("a step needs about ", human_bytes(needed), " of ", human_bytes(std::max<int64_t>(0, there)),
             recipe.gpus > 0 ? " free on the GPU" : " of memory");
  if (there > 0 && needed > there)
    return {{"network", recipe.gpus > 0 ? Outlook::kHurts : Outlook::kFails,
             concat(sentence, recipe.gpus > 0 ? ": the micro-batch will be halved (training.on_oom), " : ": ",
                    "take a smaller patch or batch, or model.use_checkpoint"),
             proof}};
  return {{"network", Outlook::kFine, sentence, proof}};
}

std::vector<Finding> lint_patch(const RecipeFacts& recipe) {
  const DataOptions& options = recipe.config.options.data;
  if (!recipe.data.problem.empty()) return {};
  const std::string proof = prove(recipe, "inspect", "--sample 0");
  if (recipe.data.narrow_cases == 0)
    return {{"patch", Outlook::kFine, concat("a patch of ", options.patch_size, " fits into every case"), proof}};
  const std::string sentence =
      concat(recipe.data.narrow_cases, " of the cases are smaller than the patch of ", options.patch_size,
             "; the first, ", recipe.data.narrow_case, ", is ", recipe.data.narrow);
  if (options.padding == "none")
    return {{"patch", Outlook::kFails,
             sentence + ", and data.padding is none; set it to constant, or take a smaller patch", proof}};
  return {{"patch", Outlook::kHurts, sentence + ": the rest is padding, which costs as much as data", proof}};
}

std::vector<Finding> lint_cache(const RecipeFacts& recipe) {
  const DataOptions& options = recipe.config.options.data;
  if (!recipe.data.problem.empty()) return {};
  const int64_t limit = gib(options.cache_gb), stored = recipe.data.stored_bytes;
  const std::string proof = prove(recipe, "bench data"),
                    sizes = concat("volumes of ", human_bytes(stored), ", data.cache_gb ", shortest(options.cache_gb));
  std::vector<Finding> found;
  const bool fits = stored + recipe.data.passing_bytes <= limit;
  const int64_t resident = std::min(limit, stored + recipe.data.passing_bytes);
  const int64_t step = recipe.gpus > 0 || !recipe.network.problem.empty() ? 0 : recipe.network.memory.total();
  if (resident + step > recipe.memory_bytes)
    found.push_back(
        {"cache", Outlook::kFails,
         concat(sizes, ": with them and the step ", human_bytes(resident + step), " of ",
                human_bytes(recipe.memory_bytes), " would be in use, and the run would be killed; lower data.cache_gb"),
         proof});
  else if (!fits && options.placement != "disk" && 4 * stored < 3 * (recipe.memory_bytes - step))
    found.push_back(
        {"cache", Outlook::kHurts,
         concat(sizes, ": patches come from chunked copies on disk, though all would fit; set data.cache_gb to ",
                (stored + recipe.data.passing_bytes + gib(1) - 1) / gib(1)),
         proof});
  if (!fits && recipe.data.restored_bytes > recipe.cache_free_bytes)
    found.push_back({"cache", Outlook::kFails,
                     concat("chunked copies of up to ", human_bytes(recipe.data.restored_bytes), " do not fit into ",
                            recipe.cache_dir, " (", human_bytes(recipe.cache_free_bytes),
                            " free); set data.cache_dir to another disk, or raise data.cache_gb"),
                     "df -h " + recipe.cache_dir});
  if (fits && !options.preprocess.empty() && !options.cache_preprocessed)
    found.push_back({"cache", Outlook::kHurts,
                     "data.cache_preprocessed is off: every start preprocesses every volume again", proof});
  if (found.empty())
    found.push_back({"cache", Outlook::kFine,
                     concat(sizes, fits ? ": all stay in memory" : ": patches come from chunked copies on disk"),
                     proof});
  return found;
}

std::vector<Finding> lint_checkpoints(const RecipeFacts& recipe) {
  if (!recipe.network.problem.empty()) return {};
  const TrainingOptions& training = recipe.config.options.training;
  const int64_t kept =
      4 + (training.save_every > 0 ? training.keep_last : 0);  // last, previous, best, one being written
  const int64_t bytes = kept * recipe.network.checkpoint_bytes;
  const std::string sentence =
      concat("up to ", kept, " checkpoints of ", human_bytes(recipe.network.checkpoint_bytes), " in ",
             recipe.run_folder, ", where ", human_bytes(recipe.run_free_bytes), " are free");
  const std::string proof = "df -h .";
  if (bytes > recipe.run_free_bytes)
    return {{"checkpoints", Outlook::kFails,
             sentence + ": the disk will be full; use --run on another, or a lower "
                        "training.keep_last",
             proof}};
  if (2 * bytes > recipe.run_free_bytes) return {{"checkpoints", Outlook::kHurts, sentence + ": that is tight", proof}};
  return {{"checkpoints", Outlook::kFine, sentence, proof}};
}

std::vector<Finding> lint_keys(const RecipeFacts& recipe) {
  const std::string proof = prove(recipe, "train", "--dry-run");
  std::vector<Finding> found;
  for (const KeyWithoutEffect& key : keys_without_effect(recipe.config))
    found.push_back({"keys", Outlook::kHurts, concat(key.key, " has no effect: ", key.reason), proof});
  if (found.empty()) found.push_back({"keys", Outlook::kFine, "every key that the recipe sets has an effect", proof});
  return found;
}

}  // namespace

const std::vector<RecipeCheck>& recipe_checks() {
  static const std::vector<RecipeCheck> checks{
      {"data", lint_data},   {"device", lint_device},           {"workers", lint_workers}, {"prefetch", lint_prefetch},
      {"batch", lint_batch}, {"precision", lint_precision},     {"network", lint_network}, {"patch", lint_patch},
      {"cache", lint_cache}, {"checkpoints", lint_checkpoints}, {"keys", lint_keys},
  };
  return checks;
}

}  // namespace vox
