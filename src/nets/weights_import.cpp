#include "nets/weights_import.h"

#include <torch/torch.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "nets/untold.h"

namespace vox {
namespace {

// Where a network's parameters stand in a file: below a prefix; in a checkpoint an average has one of its own.
struct Place {
  std::string prefix, average_prefix;
  std::string find(const ShapeMap& shapes, const std::string& name) const {  // "" where absent
    if (!average_prefix.empty() && shapes.count(average_prefix + name) > 0) return average_prefix + name;
    return shapes.count(prefix + name) > 0 ? prefix + name : "";
  }
};

struct Plan {
  ModelOptions options;
  Place place;
  std::vector<std::string> notes;
  std::optional<Recognised> found;  // of others
};

bool says_architecture(const Metadata& metadata) {
  return metadata.count("architecture") > 0 || metadata.count("model.architecture") > 0;
}

// Files that we wrote say what they hold.
Plan plan_of_ours(const WeightsSource& source, const std::vector<std::string>& overrides) {
  Plan plan{.options = model_options(source.metadata, overrides), .place = {}, .notes = {}, .found = {}};
  if (source.metadata.count("model.architecture") == 0) return plan;
  plan.place = {"model.", "ema."};
  for (const auto& [name, shape] : source.shapes) {
    if (!name.starts_with("ema.")) continue;
    plan.notes.push_back("the checkpoint holds an average of the weights: it is taken");
    break;
  }
  return plan;
}

Plan plan_of_others(const WeightsSource& source, const ImportRequest& request) {
  const std::optional<Recognised> found = recognise(source.shapes, request.architecture);
  VOX_CHECK(found || !request.architecture.empty(), source.path,
            ": no network of `voxloom list networks` has tensors of these names (the first is \"",
            source.shapes.empty() ? "" : printable(source.shapes.begin()->first),
            "\"); say which it is with --architecture, or which dict of a PyTorch file holds the weights with --entry");
  Plan plan;
  std::vector<std::string> options = found ? found->options : std::vector<std::string>{};
  options.push_back("architecture=" + (found ? found->architecture : request.architecture));
  if (found) {
    require_told(source.path, *found, request.overrides);
    plan.notes.push_back(concat("recognised as ", found->architecture, ": ", join(found->options, " ")));
    plan.place.prefix = found->prefix;
  }
  options.insert(options.end(), request.overrides.begin(), request.overrides.end());
  plan.options = model_options({}, options);
  plan.found = found;
  return plan;
}

// Names that nobody asked for; below the prefix they do not fit, outside of it they belong to something else.
void judge_the_rest(const WeightsSource& source, const Plan& plan, const std::set<std::string>& used,
                    LoadReport& report, std::vector<std::string>& notes) {
  std::vector<std::string> outside;
  const bool checkpoint = !plan.place.average_prefix.empty();
  for (const auto& [name, shape] : source.shapes) {
    if (used.count(name) > 0) continue;
    const bool below = name.starts_with(plan.place.prefix);
    const std::string own = below ? name.substr(plan.place.prefix.size()) : name;
    if (below && is_second_copy(own)) continue;
    if (checkpoint && !below) continue;  // the state of the optimizer, and averages
    (below ? report.unexpected : outside).push_back(own);
  }
  if (!outside.empty()) {
    notes.push_back(concat("passed over what is not below \"", plan.place.prefix, "\": ", some_of(outside)));
  }
}

// A file without a bias that our network has: a bias of zero computes the same. Counters and constants start as they
// are in a fresh network.
bool can_be_absent(const Parameter& parameter, const WeightsSource& source, const Place& place) {
  switch (parameter.spec.kind) {
    case ParameterKind::kBatchCount:
    case ParameterKind::kConstant:
      return true;
    case ParameterKind::kBias: {
      const std::string& name = parameter.name();
      const std::string suffix = "bias";
      return name.ends_with(suffix) &&
             !place.find(source.shapes, name.substr(0, name.size() - suffix.size()) + "weight").empty();
    }
    default:
      return false;
  }
}

// UpKern: the kernels of a smaller MedNeXt, interpolated as the original does.
bool can_be_resized(const ModelOptions& options, const std::vector<int64_t>& from, at::IntArrayRef to) {
  return options.architecture == "mednext" && from.size() == 5 && to.size() == 5 && from[0] == to[0] &&
         from[1] == to[1] && from[2] <= to[2];
}

class Importer {
 public:
  Importer(const WeightsSource& source, const Plan& plan, Network& network)
      : source_(source), plan_(plan), network_(network) {}

  void run(Missing missing, std::vector<std::string>& notes) {
    for (const Parameter& parameter : network_.parameters().all()) place(parameter);
    judge_the_rest(source_, plan_, used_, report_, notes);
    require_fit(report_, network_, source_.path, missing);
    for (const auto& [parameter, name] : loads_) load(parameter, name);
    for (const std::string& bias : zero_) {
      network_.parameters().load(bias, at::zeros_like(network_.parameters().find(bias)->master));
    }
    if (!zero_.empty()) notes.push_back(concat(zero_.size(), " biases that the file does not have are zero"));
    if (resized_ > 0) notes.push_back(concat(resized_, " kernels were interpolated to the larger size (UpKern)"));
    if (!report_.missing.empty()) notes.push_back("not in the file, drawn afresh: " + some_of(report_.missing));
    if (!report_.misshapen.empty()) notes.push_back("of another shape, drawn afresh: " + some_of(report_.misshapen));
    if (!report_.unexpected.empty()) notes.push_back("not in the network, skipped: " + some_of(report_.unexpected));
  }

 private:
  void place(const Parameter& parameter) {
    const std::string name = plan_.place.find(source_.shapes, parameter.name());
    if (name.empty()) {
      const bool fine = can_be_absent(parameter, source_, plan_.place);
      if (!fine) report_.missing.push_back(parameter.name());
      if (fine && parameter.spec.kind == ParameterKind::kBias) zero_.push_back(parameter.name());
      return;
    }
    used_.insert(name);
    used_.insert(plan_.place.prefix + parameter.name());
    const std::vector<int64_t>& shape = source_.shapes.at(name);
    const at::IntArrayRef wanted = parameter.master.sizes();
    if (at::IntArrayRef(shape) != wanted && !can_be_resized(plan_.options, shape, wanted)) {
      report_.misshapen.push_back(concat(parameter.name(), " ", at::IntArrayRef(shape), " instead of ", wanted));
      return;
    }
    loads_.emplace_back(parameter.name(), name);
  }

  void load(const std::string& parameter, const std::string& name) {
    at::Tensor values = source_.read(name);
    const at::IntArrayRef wanted = network_.parameters().find(parameter)->master.sizes();
    if (values.sizes() != wanted) {
      values = at::upsample_trilinear3d(values.to(at::kFloat), wanted.slice(2), false);
      ++resized_;
    }
    network_.parameters().load(parameter, values);
  }

  const WeightsSource& source_;
  const Plan& plan_;
  Network& network_;
  LoadReport report_;
  std::set<std::string> used_;
  std::vector<std::pair<std::string, std::string>> loads_;  // parameter, name in the file
  std::vector<std::string> zero_;
  size_t resized_ = 0;
};

}  // namespace

WeightsSource source_of(std::shared_ptr<const SafetensorsFile> file) {
  WeightsSource source{.path = file->path(), .metadata = file->metadata(), .shapes = {}, .read = {}};
  for (const StoredTensor& tensor : file->tensors()) {
    if (tensor.name != "voxloom.crc32c") source.shapes[tensor.name] = tensor.shape;
  }
  source.read = [file](const std::string& name) { return read_tensor(*file, *file->find(name)); };
  return source;
}

ImportedNetwork import_network(const WeightsSource& source, const ImportRequest& request) {
  std::vector<std::string> overrides = request.overrides;
  if (!request.architecture.empty()) overrides.push_back("architecture=" + request.architecture);
  Plan plan = says_architecture(source.metadata) ? plan_of_ours(source, overrides) : plan_of_others(source, request);
  ImportedNetwork imported{.network = nullptr, .options = plan.options, .notes = plan.notes};
  try {
    imported.network = make_network(plan.options, 0);
  } catch (const Error& error) {
    throw with_context(source.path, error);
  }
  if (plan.found) {
    const std::string note = assumed_note(*plan.found, request.overrides, plan.options, *imported.network);
    if (!note.empty()) imported.notes.push_back(note);
  }
  Importer(source, plan, *imported.network).run(request.missing, imported.notes);
  return imported;
}

std::vector<NamedTensor> state_dict(const ImportedNetwork& imported, StateDict form) {
  std::vector<NamedTensor> result;
  ShapeMap names;
  for (const Parameter& parameter : imported.network->parameters().all()) names[parameter.name()] = {};
  for (const Parameter& parameter : imported.network->parameters().all()) {
    at::Tensor values = parameter.master.cpu().contiguous();
    if (parameter.spec.kind == ParameterKind::kBatchCount) values = values.to(at::kLong);
    result.push_back({parameter.name(), values});
    if (form == StateDict::kOnce) continue;
    for (const std::string& copy : second_copies(imported.options, parameter.name(), names)) {
      result.push_back({copy, values});
    }
  }
  return result;
}

}  // namespace vox
