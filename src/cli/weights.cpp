// voxloom weights show FILE
// voxloom weights forward FILE INPUT.npy OUTPUT.npy [key=value ...]
#include "nets/weights.h"

#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "cli/command.h"
#include "io/npy.h"

namespace vox::cli {
namespace {

struct Arguments {
  std::string file, input, output, architecture, device = "cpu";
  std::vector<std::string> overrides;
  bool json = false;
};

at::Tensor read_array(const std::string& path) {
  const InputFile file(path);
  std::vector<std::byte> head(kNpyPrefixBytes);
  file.read(0, head);
  VOX_CHECK(is_npy(head), path, " is no .npy file");
  head.resize(static_cast<size_t>(npy_header_bytes(head, path)));
  file.read(0, head);
  const NpyHeader header = parse_npy_header(head, path);
  VOX_CHECK(header.descr == "<f4" && !header.fortran_order && header.shape.size() == 5, path,
            " must be a C-ordered float32 array [N, C, Z, Y, X]");
  at::Tensor values = at::empty(header.shape, at::kFloat);
  file.read(header.bytes, {static_cast<std::byte*>(values.data_ptr()), static_cast<size_t>(values.nbytes())});
  return values;
}

void write_array(const std::string& path, const at::Tensor& values) {
  std::string shape;
  for (const int64_t size : values.sizes()) shape += concat(size, ", ");
  std::string text = concat("{'descr': '<f4', 'fortran_order': False, 'shape': (", shape, "), }");
  constexpr size_t kFixed = 10;  // magic, version and length
  text.resize((text.size() + 1 + kFixed + 63) / 64 * 64 - kFixed, ' ');
  text.back() = '\n';
  OutputFile file(path);
  file.write(concat("\x93NUMPY\x01", '\0', static_cast<char>(text.size() & 0xff), static_cast<char>(text.size() >> 8)));
  file.write(text);
  file.write({static_cast<const std::byte*>(values.const_data_ptr()), static_cast<size_t>(values.nbytes())});
  file.commit();
}

std::unique_ptr<Network> load_network(const Arguments& arguments) {
  const SafetensorsFile file(arguments.file);
  std::vector<std::string> overrides = arguments.overrides;
  if (!arguments.architecture.empty()) overrides.push_back("model.architecture=" + arguments.architecture);
  std::unique_ptr<Network> network = make_network(model_options(file.metadata(), overrides), 0);
  load_weights(*network, file);
  network->parameters().to(at::Device(arguments.device));
  return network;
}

void run_forward(const Arguments& arguments) {
  const std::unique_ptr<Network> network = load_network(arguments);
  const at::NoGradGuard no_grad;
  const at::Tensor image = read_array(arguments.input).to(at::Device(arguments.device));
  write_array(arguments.output, network->forward(image).front().cpu().contiguous());
}

void run_show(const Arguments& arguments) {
  const SafetensorsFile file(arguments.file);
  int64_t bytes = 0;
  nlohmann::ordered_json json{{"metadata", file.metadata()}, {"tensors", nlohmann::ordered_json::array()}};
  for (const StoredTensor& tensor : file.tensors()) {
    json["tensors"].push_back({{"name", tensor.name}, {"dtype", tensor.dtype}, {"shape", tensor.shape}});
    bytes += tensor.bytes;
  }
  if (arguments.json) {
    std::cout << json.dump(2) << '\n';
    return;
  }
  for (const auto& [key, value] : file.metadata()) std::cout << key << ": " << value << '\n';
  for (const auto& tensor : json["tensors"]) {
    std::cout << tensor["name"].get<std::string>() << "  " << tensor["dtype"].get<std::string>() << "  "
              << tensor["shape"].dump() << '\n';
  }
  std::cout << file.tensors().size() << " tensors, " << human_bytes(bytes) << '\n';
}

void define(CLI::App& command) {
  command.require_subcommand(1);
  auto arguments = std::make_shared<Arguments>();
  CLI::App& show = *command.add_subcommand("show", "Names, types and shapes of a safetensors file");
  show.add_option("file", arguments->file, "safetensors file or checkpoint")->required();
  show.add_flag("--json", arguments->json, "one JSON document");
  show.callback([arguments] { run_show(*arguments); });
  CLI::App& forward = *command.add_subcommand("forward", "One float32 forward pass; raw outputs of the main head");
  forward.add_option("file", arguments->file, "safetensors file or checkpoint")->required();
  forward.add_option("input", arguments->input, "float32 .npy array [N, C, Z, Y, X]")->required();
  forward.add_option("output", arguments->output, ".npy file to write")->required();
  forward.add_option("overrides", arguments->overrides, "key=value of the section model");
  forward.add_option("--architecture", arguments->architecture, "network, where the file does not say");
  forward.add_option("--device", arguments->device, "cpu or cuda[:N]");
  forward.callback([arguments] { run_forward(*arguments); });
}

}  // namespace

CommandEntry weights_command() {
  return {"weights", "What a file of weights holds, and what it computes", define};
}

}  // namespace vox::cli
