#include "nets/weights.h"

#include <torch/torch.h>

#include <set>

#include "base/error.h"
#include "base/text.h"
#include "config/config.h"
#include "config/write.h"

namespace vox {
namespace {

struct TypeName {
  at::ScalarType type;
  const char* name;
};
constexpr TypeName kTypes[] = {{at::kFloat, "F32"}, {at::kDouble, "F64"}, {at::kBFloat16, "BF16"}, {at::kHalf, "F16"},
                               {at::kLong, "I64"},  {at::kInt, "I32"},    {at::kShort, "I16"},     {at::kChar, "I8"},
                               {at::kByte, "U8"},   {at::kBool, "BOOL"}};

at::ScalarType scalar_type(const StoredTensor& tensor, const std::string& path) {
  for (const TypeName& known : kTypes) {
    if (tensor.dtype == known.name) return known.type;
  }
  throw Error(concat(path, ": tensor \"", tensor.name, "\" has type ", tensor.dtype, ", which weights never have"));
}

// The original network registers its encoder twice and each layer of a block twice: one copy is enough.
bool is_second_copy(const std::string& name) {
  return name.find(".all_modules.") != std::string::npos || name.rfind("decoder.encoder.", 0) == 0;
}

std::string first_few(const std::vector<std::string>& names) {
  constexpr size_t kShown = 4;
  std::vector<std::string> shown(names.begin(), names.begin() + std::min(names.size(), kShown));
  std::string text = join(shown, ", ");
  if (names.size() > kShown) text += concat(", ... (", names.size(), " in all)");
  return text;
}

}  // namespace

std::string safetensors_type(at::ScalarType type) {
  for (const TypeName& known : kTypes) {
    if (type == known.type) return known.name;
  }
  throw Error(concat("tensors of type ", at::toString(type), " cannot be stored"), Fault::kBug);
}

at::Tensor read_tensor(const SafetensorsFile& file, const StoredTensor& tensor) {
  at::Tensor values = at::empty(tensor.shape, scalar_type(tensor, file.path()));
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

LoadReport load_weights(Network& network, const TensorMap& weights, Missing missing) {
  LoadReport report;
  for (const auto& [name, values] : weights) {
    if (!network.parameters().find(name) && !is_second_copy(name)) report.unexpected.push_back(name);
  }
  for (const Parameter& parameter : network.parameters().all()) {
    if (!weights.count(parameter.name())) report.missing.push_back(parameter.name());
  }
  if (missing == Missing::kFail) {
    VOX_CHECK(report.missing.empty(), "the weights lack ", first_few(report.missing),
              "; is model.architecture right? --partial takes what is there");
    VOX_CHECK(report.unexpected.empty(), "the weights have ", first_few(report.unexpected),
              ", which the network does not; is model.architecture right? --partial takes what fits");
  }
  VOX_CHECK(report.missing.size() < network.parameters().all().size(),
            "none of the weights belongs to this network; is model.architecture right?");
  for (const Parameter& parameter : network.parameters().all()) {
    const auto found = weights.find(parameter.name());
    if (found != weights.end()) network.parameters().load(parameter.name(), found->second);
  }
  return report;
}

LoadReport load_weights(Network& network, const SafetensorsFile& file, const std::string& prefix, Missing missing) {
  const std::string& first = network.parameters().all().front().name();
  const bool in_checkpoint = prefix.empty() && !file.find(first) && file.find("model." + first);
  const std::string start = in_checkpoint ? "model." : prefix;
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
  std::set<std::string> known;
  for (const auto& [key, value] : describe({})) known.insert(key);
  std::vector<std::string> all;
  for (const auto& [key, value] : metadata) {
    const std::string name = key.rfind(section, 0) == 0 ? key.substr(section.size()) : key;
    if (known.count(name)) all.push_back(concat(section, name, "=", value));
  }
  for (const std::string& text : overrides) all.push_back(text.rfind(section, 0) == 0 ? text : section + text);
  return parse_config("", fs::current_path(), all).options.model;
}

}  // namespace vox
