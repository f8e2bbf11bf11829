// voxloom weights forward FILE INPUT.npy OUTPUT.npy [key=value ...]
#include "cli/weights_forward.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "base/error.h"
#include "base/text.h"
#include "cli/weights_file.h"
#include "io/npy.h"
#include "train/learner.h"

namespace vox::cli {
namespace {

struct Arguments {
  std::string file, input, output, architecture, device = "cpu", gradients;
  std::vector<std::string> overrides, output_gradients;
  bool all_heads = false, training = false, channels_last = false;
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
  for (const int64_t size : header.shape) VOX_CHECK(size > 0, path, " holds no values: one of its axes has length 0");
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
  const ImportRequest request{arguments.architecture, arguments.overrides};
  std::unique_ptr<Network> network = import_network(open_weights(arguments.file, "").source, request).network;
  network->parameters().to(choose_device(arguments.device, SystemOptions{}));
  if (arguments.channels_last) network->parameters().to(at::MemoryFormat::ChannelsLast3d);
  return network;
}

// "out.npy" of head 2 is "out.2.npy"; of the first it is the name itself.
std::string head_file(const std::string& path, size_t head) {
  if (head == 0) return path;
  const fs::path whole(path);
  return (whole.parent_path() / concat(whole.stem().string(), ".", head, whole.extension().string())).string();
}

// Of the sum of every output times its given gradient, as PyTorch's backward(gradient) has it.
void write_gradients(Network& network, const std::vector<at::Tensor>& outputs, const Arguments& arguments) {
  VOX_CHECK(arguments.output_gradients.size() == outputs.size(), "--output-gradients names ",
            arguments.output_gradients.size(), " files but the network has ", outputs.size(), " outputs");
  at::Tensor sum;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const at::Tensor gradient = read_array(arguments.output_gradients[i]).to(outputs[i].device());
    VOX_CHECK(gradient.sizes() == outputs[i].sizes(), arguments.output_gradients[i], " is ", gradient.sizes(),
              " but output ", i, " is ", outputs[i].sizes());
    const at::Tensor part = (outputs[i] * gradient).sum();
    sum = sum.defined() ? sum + part : part;
  }
  sum.backward();
  network.parameters().collect_grads();
  std::vector<at::Tensor> kept;
  std::vector<TensorToStore> stored;
  for (const Parameter& parameter : network.parameters().all()) {
    if (!parameter.grad.defined()) continue;
    kept.push_back(parameter.grad.cpu().contiguous());
    stored.push_back(tensor_to_store(parameter.name(), kept.back()));
  }
  write_safetensors(arguments.gradients, stored, {});
}

void run_forward(const Arguments& arguments) {
  const std::unique_ptr<Network> network = load_network(arguments);
  const c10::AutoGradMode with_gradients(!arguments.gradients.empty());
  const at::Tensor image = read_array(arguments.input).to(network->parameters().device());
  const std::vector<at::Tensor> outputs =
      network->forward(image, {.training = arguments.training, .all_heads = arguments.all_heads});
  for (size_t i = 0; i < (arguments.all_heads ? outputs.size() : 1); ++i)
    write_array(head_file(arguments.output, i), outputs[i].detach().cpu().contiguous());
  if (!arguments.gradients.empty()) write_gradients(*network, outputs, arguments);
}

}  // namespace

void define_weights_forward(CLI::App& forward) {
  auto arguments = std::make_shared<Arguments>();
  forward.add_option("file", arguments->file, "safetensors, checkpoint, .pt, .pth, .ckpt, .h5 or .keras")->required();
  forward.add_option("input", arguments->input, "float32 .npy array [N, C, Z, Y, X]")->required();
  forward.add_option("output", arguments->output, ".npy file to write")->required();
  forward.add_option("overrides", arguments->overrides, "key=value of the section model");
  forward.add_option("--architecture", arguments->architecture, "network, where the file does not say");
  forward.add_option("--device", arguments->device, "cpu or cuda[:N]");
  forward.add_flag("--all-heads", arguments->all_heads, "coarser outputs too, as OUTPUT.1.npy, OUTPUT.2.npy, ...");
  forward.add_flag("--training", arguments->training, "as in training: statistics of the batch, dropout");
  forward.add_flag("--channels-last", arguments->channels_last, "compute in the channels-last layout");
  forward
      .add_option("--output-gradients", arguments->output_gradients, "gradients of the outputs, .npy, one per output")
      ->delimiter(',')
      ->allow_extra_args(false);
  forward.add_option("--gradients", arguments->gradients, "safetensors file for the gradients of the weights");
  forward.callback([arguments] { run_forward(*arguments); });
}

}  // namespace vox::cli
