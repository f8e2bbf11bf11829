// voxloom weights show FILE
#include "nets/weights.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/weights_forward.h"

namespace vox::cli {
namespace {

struct Arguments {
  std::string file;
  bool json = false;
};

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
  define_weights_forward(forward);
}

}  // namespace

CommandEntry weights_command() {
  return {"weights", "What a file of weights holds, and what it computes", define};
}

}  // namespace vox::cli
