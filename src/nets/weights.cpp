#include "nets/weights.h"

#include <torch/torch.h>

#include <set>

#include "base/error.h"
#include "base/text.h"
#include "config/config.h"
#include "config/write.h"
#include "nets/recognise.h"

namespace vox {
namespace {

struct TypeName {
  at::ScalarType type;
  const char* name;
};
constexpr TypeName kTypes[] = {{at::kFloat, "F32"}, {at::kDouble, "F64"}, {at::kBFloat16, "BF16"}, {at::kHalf, "F16"},
                               {at::kLong, "I64"},  {at::kInt, "I32"},    {at::kShort, "I16"},     {at::kChar, "I8"},
                               {at::kByte, "U8"},   {at::kBool, "BOOL"}};

constexpr size_t kShown = 6;  // names of a list

std::string first_of(const std::vector<std::string>& names) {  // "a, b, ..."
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) shown.push_back(printable(names[i]));
  if (names.size() > kShown) shown.push_back("...");
  return join(shown, ", ");
}

// A checkpoint has the weights below "model.", beside their average and the state of the optimizer. Wrappers have them
// there too, and MONAI's UNet has names of its own that begin so.
std::string prefix_in(const SafetensorsFile& file, const Network& network) {
  const std::string& first = network.parameters().all().front().name();
  const bool checkpoint = file.metadata().count("model.architecture") > 0 || file.find("voxloom.crc32c");
  const bool wrapped = !file.find(first) && file.find("model." + first);
  return checkpoint || wrapped ? "model." : "";
}

}  // namespace

std::string safetensors_type(at::ScalarType type) {
  for (const TypeName& known : kTypes) {
    if (type == known.type) return known.name;
  }
  throw Error(concat("tensors of type ", at::toString(type), " cannot be stored"), Fault::kBug);
}

at::ScalarType scalar_type(const std::string& safetensors_type, const std::string& what) {
  for (const TypeName& known : kTypes) {
    if (safetensors_type == known.name) return known.type;
  }
  throw Error(concat(what, " has type ", safetensors_type, ", which weights never have"));
}

at::Tensor read_tensor(const SafetensorsFile& file, const StoredTensor& tensor) {
  at::Tensor values =
      at::empty(tensor.shape, scalar_type(tensor.dtype, concat(file.path(), ": tensor \"", tensor.name, "\"")));
  file.read(tensor, {static_cast<std::byte*>(values.data_ptr()), static_cast<size_t>(tensor.bytes)});
  return values;
}

TensorToStore tensor_to_store(const std::string& name, const at::Tensor& tensor) {
  VOX_ASSERT(tensor.is_cpu() && tensor.is_contiguous());
  return {name,
          safetensors_type(tensor.scalar_type()),
          tensor.sizes().vec(),
          {static_cast<const std::byte*>(tensor.const_data_ptr()), static_cast<size_t>(tensor.nbytes())}};
}

std::string some_of(const std::vector<std::string>& names) {
  return first_of(names) + (names.size() > kShown ? concat(" (", names.size(), " in all)") : "");
}

std::string partial_note(const LoadReport& report, const Network& network, const std::string& path) {
  const std::set<std::string> missing(report.missing.begin(), report.missing.end());
  std::vector<std::string> drawn, parts;
  for (const Parameter& parameter : network.parameters().all()) {
    const ParameterKind kind = parameter.spec.kind;
    const bool same_in_all = kind == ParameterKind::kBatchCount || kind == ParameterKind::kConstant;
    if (!same_in_all && missing.count(parameter.name()) > 0) drawn.push_back(parameter.name());
  }
  if (!drawn.empty()) {
    parts.push_back(concat("not in the file, drawn afresh: ", drawn.size(), " of the network's ",
                           network.parameters().all().size(), " tensors (", first_of(drawn), ")"));
  }
  if (!report.unexpected.empty()) {
    parts.push_back(concat("not in the network, skipped: ", report.unexpected.size(), " of the file's tensors (",
                           first_of(report.unexpected), ")"));
  }
  return parts.empty() ? "" : concat(path, ": ", join(parts, "; "));
}

void require_fit(const LoadReport& report, const Network& network, const std::string& path, Missing missing) {
  std::vector<std::string> problems;
  const auto add = [&](const char* what, const std::vector<std::string>& names, bool allowed) {
    if (!names.empty() && !allowed) problems.push_back(concat(what, some_of(names)));
  };
  add("missing ", report.missing, missing != Missing::kFail);
  add("unexpected ", report.unexpected, missing != Missing::kFail);
  add("wrong-shaped ", report.misshapen, missing == Missing::kSkip);
  const std::string start = path.empty() ? "" : path + ": ";
  VOX_CHECK(problems.empty(), start, "the weights do not fit the network: ", join(problems, "; "),
            ". Are model.architecture and its options right? `voxloom weights import --partial` takes what fits");
  VOX_CHECK(report.missing.size() + report.misshapen.size() < network.parameters().all().size(), start,
            "none of the weights belongs to this network; is model.architecture right?");
}

LoadReport load_weights(Network& network, const TensorMap& weights, Missing missing) {
  LoadReport report;
  for (const auto& [name, values] : weights) {
    if (!network.parameters().find(name) && !is_second_copy(name)) report.unexpected.push_back(name);
  }
  std::vector<std::string> fitting;
  for (const Parameter& parameter : network.parameters().all()) {
    const auto found = weights.find(parameter.name());
    if (found == weights.end()) {
      report.missing.push_back(parameter.name());
    } else if (found->second.sizes() != parameter.master.sizes()) {
      report.misshapen.push_back(
          concat(parameter.name(), " ", found->second.sizes(), " instead of ", parameter.master.sizes()));
    } else {
      fitting.push_back(parameter.name());
    }
  }
  require_fit(report, network, "", missing);
  for (const std::string& name : fitting) network.parameters().load(name, weights.at(name));
  return report;
}

LoadReport load_weights(Network& network, const SafetensorsFile& file, const std::string& prefix, Missing missing) {
  const std::string start = prefix.empty() ? prefix_in(file, network) : prefix;
  TensorMap weights;
  for (const StoredTensor& tensor : file.tensors()) {
    if (tensor.name.rfind(start, 0) != 0) continue;
    const std::string name = tensor.name.substr(start.size());
    if (!is_second_copy(name)) weights[name] = read_tensor(file, tensor);
  }
  try {
    return load_weights(network, weights, missing);
  } catch (const Error& error) {
    throw with_context(file.path(), error);
  }
}

Metadata describe(const ModelOptions& options) {
  ModelOptions described = options;
  described.weights.clear();  // where they came from rebuilds nothing
  Writer writer;
  described.describe(writer);
  Metadata metadata;
  for (const auto& [key, value] : writer.values()) {
    if (value != scalar_tree("")) metadata[key] = flow_text(value);
  }
  return metadata;
}

ModelOptions model_options(const Metadata& metadata, const std::vector<std::string>& overrides) {
  const std::string section = "model.";
  ModelOptions any;
  any.file = "any";  // describe() leaves out what is empty
  std::set<std::string> known;
  for (const auto& [key, value] : describe(any)) known.insert(key);
  std::vector<std::string> all;
  for (const auto& [key, value] : metadata) {
    const std::string name = key.rfind(section, 0) == 0 ? key.substr(section.size()) : key;
    if (known.count(name)) all.push_back(concat(section, name, "=", value));
  }
  for (const std::string& text : overrides) all.push_back(text.rfind(section, 0) == 0 ? text : section + text);
  return parse_config("", fs::current_path(), all).options.model;
}

}  // namespace vox
