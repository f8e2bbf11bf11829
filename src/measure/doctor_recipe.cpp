#include "measure/doctor_recipe.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "measure/doctor_disk.h"
#include "measure/doctor_files.h"
#include "train/learner.h"
#include "volume/dataset.h"
#include "volume/shelf.h"
#include "volume/unit.h"

namespace vox {
namespace {

void add_unit(const Unit& unit, std::map<uint64_t, bool>& seen, DataFacts& facts) {
  if (!seen.emplace(unit.key, true).second) return;
  const int64_t bytes = unit.stored.bytes();
  facts.stored_bytes += bytes;
  facts.passing_bytes = std::max(facts.passing_bytes, unit.peak_bytes - bytes);
  if (!unit.direct) facts.restored_bytes += unit.role == Role::kImage ? bytes : bytes / 4;  // labels pack well
}

void note_narrow(const Unit& image, const Extent3& patch, DataFacts& facts) {
  if (min(image.stored.extent, patch) == patch || ++facts.narrow_cases > 1) return;
  facts.narrow = image.stored.extent;
  facts.narrow_case = image.case_id;
}

CaseUnits open_or_leave_out(const Case& item, const DataOptions& data, const Preprocess& preprocess, DataFacts& facts) {
  try {
    return open_case(item, data, preprocess);
  } catch (const Error& error) {
    if (data.on_bad_case != "skip") throw;
    if (facts.left_out++ == 0) facts.why_left_out = with_context(concat("case ", item.id), error).what();
    return {};
  }
}

DataFacts data_facts(const Options& options) {
  DataFacts facts;
  try {
    const Dataset dataset =
        make_dataset(options.data, options.training.fold, static_cast<uint64_t>(options.training.seed));
    const auto count = [](const std::vector<int64_t>& part, int64_t index) {
      return static_cast<int64_t>(std::count(part.begin(), part.end(), index));
    };
    const Preprocess preprocess(options.data);
    std::map<uint64_t, bool> seen;
    for (int64_t i = 0; i < static_cast<int64_t>(dataset.cases.size()); ++i) {
      const CaseUnits units = open_or_leave_out(dataset.cases[static_cast<size_t>(i)], options.data, preprocess, facts);
      if (units.images.empty()) continue;
      facts.train += count(dataset.train, i);
      facts.validation += count(dataset.validation, i);
      for (const Unit& image : units.images) add_unit(image, seen, facts);
      if (units.label) add_unit(*units.label, seen, facts);
      if (units.mask) add_unit(*units.mask, seen, facts);
      facts.channels = static_cast<int64_t>(units.images.size());
      note_narrow(units.images.front(), options.data.patch_size, facts);
    }
  } catch (const Error& error) {
    facts.to_be_made = !options.data.synth.kind.empty() && !fs::exists(options.data.root);
    facts.problem = error.what();
  }
  return facts;
}

NetworkFacts network_facts(const Options& options, int64_t channels) {
  NetworkFacts facts;
  try {
    const std::vector<int64_t> labels = options.data.labels.empty() ? std::vector<int64_t>{0, 1} : options.data.labels;
    const ModelOptions model = resolve_model(options, channels, labels);
    const std::unique_ptr<Network> network = make_network(model, 0);
    network->require_divisible(options.data.patch_size);
    const auto memory_of = [&](int64_t batch) {
      Options sized = options;
      sized.data.batch_size = batch;
      sized.model = model;
      return estimate_memory(sized, network->parameters(), network->layer_table(options.data.patch_size, batch),
                             memory_here(options.system));
    };
    facts.memory = memory_of(options.data.batch_size);
    facts.memory_doubled = memory_of(2 * options.data.batch_size);
    facts.checkpoint_bytes =
        network->parameters().count() * 4 * (options.training.ema > 0 ? 2 : 1) + facts.memory.optimizer;
  } catch (const Error& error) {
    facts.problem = error.what();
  }
  return facts;
}

int64_t gpus_asked_for(const MachineView& machine, const SystemOptions& system) {
  if (machine.device == "cpu") return 0;
  return !machine.device.empty() && system.num_gpus == 0 ? 1 : system.num_gpus;
}

}  // namespace

RecipeFacts recipe_facts(const Config& config, const std::string& name, const MachineView& machine) {
  RecipeFacts facts;
  Options options = config.options;
  facts.config = config;
  facts.name = name;
  facts.cpus = count_cpus(machine).usable();
  facts.memory_bytes = count_memory(machine).usable();
  facts.device = machine.device;
  options.system.num_gpus = gpus_asked_for(machine, options.system);
  facts.gpus = options.system.num_gpus == 0 || !machine.torch.kernels ? 0 : machine.torch.gpus;
  const std::vector<size_t> visible = visible_gpus(machine.gpus.gpus, machine.visible);
  if (facts.gpus > 0 && !visible.empty()) {
    facts.gpu_free_bytes = machine.gpus.gpus[visible.front()].free_bytes;
    facts.gpu_capability = machine.gpus.gpus[visible.front()].capability;
  }
  facts.run_folder = fs::absolute("runs").string();
  facts.cache_dir = cache_folder(options.data.cache_dir).string();
  facts.run_free_bytes = free_bytes(facts.run_folder);
  facts.cache_free_bytes = free_bytes(facts.cache_dir);
  facts.data = data_facts(options);
  const Mount mount = options.data.root.empty() ? Mount{} : mount_of(machine, options.data.root);
  if (is_network(mount)) facts.data.network = mount.type + " " + mount.source;
  const int64_t declared = std::max<int64_t>(1, options.model.in_channels);
  facts.network = network_facts(options, facts.data.problem.empty() ? facts.data.channels : declared);
  return facts;
}

std::vector<Finding> examine_recipe(const RecipeFacts& recipe) {
  std::vector<Finding> all;
  for (const RecipeCheck& check : recipe_checks()) {
    const std::vector<Finding> found = check.look(recipe);
    all.insert(all.end(), found.begin(), found.end());
  }
  return all;
}

}  // namespace vox
