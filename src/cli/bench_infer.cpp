// voxloom bench infer WEIGHTS INPUT [key=value ...]: sliding windows over a volume in memory, the files left out.
#include <ATen/Parallel.h>
#include <ATen/ops/from_blob.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/span.h"
#include "cli/bench.h"
#include "config/config.h"
#include "infer/predict.h"
#include "io/format.h"
#include "nets/weights.h"
#include "train/learner.h"
#include "train/state.h"
#include "volume/preprocess.h"

namespace vox::cli {
namespace {

struct Arguments {
  std::string weights, input, output, device;
  std::vector<std::string> overrides;
  int threads = 0, repeats = 5, warm_up = 1;
  bool resident = false, as_json = false;
};

WindowSource source_of(const Volume& volume, const Extent3& window, const GatherOptions& outside) {
  WindowSource source{.extent = volume.info.extent, .channels = volume.info.channels};
  source.read = [&volume, window, outside](const Extent3& begin, int64_t channel, float* out) {
    GatherMap map;
    map.origin = begin;
    gather_cpu({.data = out, .dtype = DType::kFloat32, .extent = window}, view_of(volume, channel), map, outside);
  };
  return source;
}

void write_logits(const std::string& path, const Logits& logits) {
  Volume volume = allocate_volume({.dtype = DType::kFloat32, .extent = logits.extent, .channels = logits.channels});
  std::copy_n(logits.data.data(), volume.data.size(), volume.data.data());
  write_volume(path, volume);
}

std::vector<double> time_from_memory(Network& network, const WindowSource& source, const SlidingWindowOptions& window,
                                     const Arguments& arguments) {
  std::vector<double> milliseconds;
  for (int i = -arguments.warm_up; i < arguments.repeats; ++i) {
    const Clock::time_point start = Clock::now();
    const Logits logits = predict_logits(network, source, window);
    if (i >= 0) milliseconds.push_back(1e3 * seconds_since(start));
    if (i + 1 == arguments.repeats && !arguments.output.empty()) write_logits(arguments.output, logits);
  }
  return milliseconds;
}

// Volume and result stay on the device.
std::vector<double> time_resident(Network& network, const Volume& volume, const SlidingWindowOptions& window,
                                  const Arguments& arguments) {
  const Extent3& size = volume.info.extent;
  for (int a = 0; a < 3; ++a)
    VOX_CHECK(size[a] >= window.window[a], arguments.input, " is ", size, " and the window ", window.window,
              "; with --resident the volume must not be smaller");
  VOX_CHECK(window.shift == Extent3{}, "inference.shift is ", window.shift,
            "; with --resident windows are not moved, as some would lie outside the volume");
  const Volume values = to_float32(volume);
  const at::Device device = network.parameters().device();
  const at::Tensor resident = at::from_blob(const_cast<std::byte*>(values.data.data()),
                                            {values.info.channels, size.z, size.y, size.x}, at::kFloat)
                                  .to(device);
  std::vector<double> milliseconds;
  for (int i = -arguments.warm_up; i < arguments.repeats; ++i) {
    const Clock::time_point start = Clock::now();
    const at::Tensor logits = predict_resident({&network}, resident, window);
    logits.flatten()[0].item<float>();  // waits for the device
    if (i >= 0) milliseconds.push_back(1e3 * seconds_since(start));
  }
  return milliseconds;
}

void run(const Arguments& arguments) {
  const SafetensorsFile file(arguments.weights);
  VOX_CHECK(file.metadata().count("architecture") > 0, arguments.weights,
            " is no file of `voxloom weights import`, which this benchmark takes");
  const Options options =
      parse_config(to_yaml(options_of(file.metadata(), arguments.weights)), fs::current_path(), arguments.overrides)
          .options;
  const at::Device device = choose_device(arguments.device, options.system);
  const std::unique_ptr<Network> network = make_network_on(device, model_options(file.metadata()), options.training);
  load_weights(*network, file);
  if (arguments.threads > 0) at::set_num_threads(arguments.threads);
  const Volume volume = read_volume(arguments.input);
  SlidingWindowOptions window = window_options(options);
  window.window = network->round_up(window.window);
  const WindowSource source = source_of(volume, window.window, outside_of(options.data));
  const std::vector<double> milliseconds = arguments.resident ? time_resident(*network, volume, window, arguments)
                                                              : time_from_memory(*network, source, window, arguments);
  nlohmann::json row = timing_summary("infer", milliseconds);
  row["times_ms"] = milliseconds;
  row["windows"] =
      window_places(source.extent, window.window, window.overlap, whole(source.extent), window.shift).count();
  row["mvoxel_per_s"] = static_cast<double>(source.extent.voxels()) / 1e3 / row["median_ms"].get<double>();
  print_results(nlohmann::json::array({row}), arguments.as_json);
}

}  // namespace

void define_bench_infer(CLI::App& command) {
  auto arguments = std::make_shared<Arguments>();
  command.add_option("weights", arguments->weights, "file of `voxloom weights import`")->required();
  command.add_option("input", arguments->input, "volume to predict, read once")->required();
  command.add_option("overrides", arguments->overrides, "key=value ..., such as inference.overlap=0.5");
  command.add_option("--output", arguments->output, "volume that gets the network's raw output");
  command.add_option("--repeats", arguments->repeats, "times to predict it")->check(CLI::PositiveNumber);
  command.add_option("--warm-up", arguments->warm_up, "times before the clock starts")->check(CLI::NonNegativeNumber);
  command.add_option("--threads", arguments->threads, "torch's own threads; 0: all there are")
      ->check(CLI::Range(0, 1024));
  command.add_option("--device", arguments->device, "cpu, cuda or cuda:N; without it a GPU where there is one");
  command.add_flag("--resident", arguments->resident, "volume and result stay on the device");
  command.add_flag("--json", arguments->as_json, "one JSON document on standard output");
  command.callback([arguments] { run(*arguments); });
}

}  // namespace vox::cli
