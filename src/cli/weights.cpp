// voxloom weights show FILE [--architecture A] [key=value ...] [--json] [--output OUT]
// voxloom weights import FILE [--output OUT.safetensors] [key=value ...]
// voxloom weights export FILE [--output OUT.pt|OUT.safetensors]
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/weights_file.h"
#include "cli/weights_forward.h"
#include "config/config.h"
#include "nets/untold.h"
#include "train/state.h"

namespace vox::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Arguments {
  std::string file, output, architecture, entry, format;
  std::vector<std::string> overrides;
  bool json = false, partial = false;
};

int64_t count_of(const ArrayEntry& tensor) {
  int64_t count = 1;
  for (const int64_t size : tensor.shape) count *= size;
  return count;
}

// Overrides of other sections than model: how the data was prepared, for predict.
struct Overrides {
  std::vector<std::string> model, others;
};

Overrides sorted_overrides(const std::vector<std::string>& all) {
  Overrides sorted;
  for (const std::string& text : all) {
    const std::string key = text.substr(0, text.find('='));
    const bool other = key.find('.') != std::string::npos && !key.starts_with("model.");
    (other ? sorted.others : sorted.model).push_back(text);
  }
  return sorted;
}

std::string listing(const OpenedWeights& weights, const Json& totals) {
  std::ostringstream out;
  for (const auto& [key, value] : weights.source.metadata)
    if (key != "config") out << printable(key) << ": " << printable(value) << '\n';
  for (const ArrayEntry& tensor : weights.tensors)
    out << printable(tensor.name) << "  " << tensor.dtype << "  " << Json(tensor.shape).dump() << '\n';
  out << weights.tensors.size() << " tensors, " << totals["numbers"].get<int64_t>() << " numbers, "
      << human_bytes(totals["bytes"].get<int64_t>()) << '\n';
  return out.str();
}

// A network that is named must fit: what does not is an error, as it would be for import.
Json fitting_network(const Arguments& arguments, const OpenedWeights& weights) {
  const Missing missing = arguments.partial ? Missing::kSkip : Missing::kFail;
  const ImportedNetwork imported =
      import_network(weights.source, {arguments.architecture, sorted_overrides(arguments.overrides).model, missing});
  return {{"architecture", imported.options.architecture},
          {"parameters", imported.network->parameters().count()},
          {"notes", imported.notes}};
}

std::string sentence_of(const Json& network) {
  std::string text = concat("fits ", network["architecture"].get<std::string>(), ", ",
                            network["parameters"].get<int64_t>(), " parameters\n");
  for (const Json& note : network["notes"]) text += note.get<std::string>() + "\n";
  return text;
}

void run_show(const Arguments& arguments) {
  const bool fit = !arguments.architecture.empty() || !arguments.overrides.empty() || arguments.partial;
  const OpenedWeights weights = open_weights(arguments.file, arguments.entry, KerasNames::kOwn);
  int64_t bytes = 0, numbers = 0;
  Json json{{"metadata", weights.source.metadata}, {"tensors", Json::array()}};
  for (const ArrayEntry& tensor : weights.tensors) {
    json["tensors"].push_back({{"name", tensor.name}, {"dtype", tensor.dtype}, {"shape", tensor.shape}});
    bytes += tensor.bytes;
    numbers += count_of(tensor);
  }
  json["totals"] = {{"tensors", weights.tensors.size()}, {"numbers", numbers}, {"bytes", bytes}};
  if (fit) json["network"] = fitting_network(arguments, open_weights(arguments.file, arguments.entry));
  std::string text = listing(weights, json["totals"]) + (fit ? sentence_of(json["network"]) : "");
  if (arguments.json) text = json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  if (arguments.output.empty())
    std::cout << text;
  else
    write_file(arguments.output, text);
}

Metadata metadata_of(const Arguments& arguments, const ImportedNetwork& imported) {
  Metadata metadata = describe(imported.options);
  Options options = parse_config("", fs::current_path(), sorted_overrides(arguments.overrides).others).options;
  options.model = imported.options;
  check_text(options);
  metadata["config"] = to_yaml(options);
  return metadata;
}

ImportedNetwork load(const Arguments& arguments) {
  const OpenedWeights weights = open_weights(arguments.file, arguments.entry);
  const Missing missing = arguments.partial ? Missing::kSkip : Missing::kFail;
  ImportedNetwork imported =
      import_network(weights.source, {arguments.architecture, sorted_overrides(arguments.overrides).model, missing});
  for (const std::string& note : imported.notes) std::cout << note << '\n';
  return imported;
}

void say_written(const Arguments& arguments, const ImportedNetwork& imported) {
  std::cout << "wrote " << arguments.output << ": " << imported.options.architecture << ", "
            << imported.network->parameters().count() << " parameters\n";
}

template <class Array>
std::vector<Array> to_write(const std::vector<NamedTensor>& tensors) {
  std::vector<Array> arrays;
  for (const NamedTensor& tensor : tensors) {
    const TensorToStore stored = tensor_to_store(tensor.name, tensor.values);
    arrays.push_back({stored.name, stored.dtype, stored.shape, stored.bytes});
  }
  return arrays;
}

// Without --output the name of FILE with another suffix; never FILE itself.
void choose_output(Arguments& arguments, const std::string& suffix) {
  if (arguments.output.empty()) arguments.output = fs::path(arguments.file).replace_extension(suffix).string();
  VOX_CHECK(fs::weakly_canonical(arguments.output) != fs::weakly_canonical(arguments.file), arguments.file,
            " would be overwritten by what is made of it; name another file with --output");
}

void run_import(Arguments arguments) {
  choose_output(arguments, ".safetensors");
  VOX_CHECK(ends_with(arguments.output, ".safetensors"), "--output is ", arguments.output,
            "; import writes .safetensors (`voxloom weights export` writes .pt)");
  const ImportedNetwork imported = load(arguments);
  const std::vector<NamedTensor> tensors = state_dict(imported, StateDict::kOnce);
  write_safetensors(arguments.output, to_write<TensorToStore>(tensors), metadata_of(arguments, imported));
  say_written(arguments, imported);
}

void run_export(Arguments arguments) {
  choose_output(arguments, arguments.format == "safetensors" ? ".safetensors" : ".pt");
  std::string format = arguments.format;
  if (format.empty()) format = ends_with(arguments.output, ".safetensors") ? "safetensors" : "pt";
  const bool named = format == "safetensors" || !arguments.format.empty() || ends_with(arguments.output, ".pt") ||
                     ends_with(arguments.output, ".pth") || ends_with(arguments.output, ".ckpt");
  VOX_CHECK(named, "--output is ", arguments.output,
            "; its name must end in .pt, .pth or .safetensors, or --format say");
  const ImportedNetwork imported = load(arguments);
  for (const std::string& note : lost_in_export(imported.options)) std::cout << note << '\n';
  const std::vector<NamedTensor> tensors = state_dict(imported, StateDict::kWithSecondCopies);
  if (format == "pt") {
    write_torch_file(arguments.output, to_write<ArrayToWrite>(tensors));
  } else {
    write_safetensors(arguments.output, to_write<TensorToStore>(tensors), describe(imported.options));
  }
  say_written(arguments, imported);
}

void add_common(CLI::App& command, Arguments& arguments) {
  command.add_option("file", arguments.file, "safetensors, checkpoint, .pt, .pth, .ckpt, .h5 or .keras")->required();
  command.add_option("--entry", arguments.entry, "which dict of a PyTorch file holds the weights");
}

void add_network(CLI::App& command, Arguments& arguments) {
  command.add_option("overrides", arguments.overrides,
                     "key=value of the section model, which win; of data and inference, for predict");
  command.add_option("--architecture", arguments.architecture, "network, where the file does not say");
  command.add_flag("--partial", arguments.partial, "take what fits, and say what was skipped");
}

void define(CLI::App& command) {
  command.require_subcommand(1);
  auto arguments = std::make_shared<Arguments>();
  CLI::App& show = *command.add_subcommand("show", "Names, types and shapes of a file of weights");
  add_common(show, *arguments);
  add_network(show, *arguments);
  show.add_option("--output", arguments->output, "file for the list; absent: standard output");
  show.add_flag("--json", arguments->json, "one JSON document");
  show.callback([arguments] { run_show(*arguments); });
  CLI::App& import = *command.add_subcommand("import", "Weights of PyTorch or Keras to a file with all that runs them");
  add_common(import, *arguments);
  add_network(import, *arguments);
  import.add_option("--output", arguments->output, "safetensors file; absent: the name of FILE with that suffix");
  import.callback([arguments] { run_import(*arguments); });
  CLI::App& exported = *command.add_subcommand("export", "To a state dict under the original's names");
  add_common(exported, *arguments);
  add_network(exported, *arguments);
  exported.add_option("--output", arguments->output,
                      ".pt or .safetensors file; absent: the name of FILE with the suffix .pt");
  exported.add_option("--format", arguments->format, "pt or safetensors; absent: by the suffix")
      ->check(CLI::IsMember({"pt", "safetensors"}));
  exported.callback([arguments] { run_export(*arguments); });
  CLI::App& forward = *command.add_subcommand("forward", "One float32 forward pass; raw outputs of the main head");
  define_weights_forward(forward);
}

}  // namespace

CommandEntry weights_command() {
  return {"weights", "Weights in and out: what a file holds, and what it computes", define};
}

}  // namespace vox::cli
