// voxloom bench augment: one core augments patches of a volume in memory, by the options of a recipe's augmentation.
#include <CLI/CLI.hpp>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "augment/augment_timing.h"
#include "cli/bench.h"
#include "config/config.h"
#include "io/format.h"

namespace vox::cli {
namespace {

using nlohmann::json;

struct Arguments {
  std::string image, label, output, label_output;
  std::vector<std::string> overrides;
  AugmentTimingRequest request;
  bool as_json = false;
};

Volume random_bytes(const Extent3& extent, uint32_t below) {
  Volume volume = allocate_volume({.dtype = DType::kUInt8, .extent = extent});
  const Random random(0, 0, kSynthStream);
  for (int64_t i = 0; i < extent.voxels(); ++i)
    volume.data.as<uint8_t>()[i] = static_cast<uint8_t>(random.bits_at(static_cast<uint32_t>(i)) % below);
  return volume;
}

void write_patch(const std::string& path, const Extent3& extent, DType dtype, const void* values) {
  if (path.empty()) return;
  Volume patch = allocate_volume({.dtype = dtype, .extent = extent});
  std::memcpy(patch.data.data(), values, static_cast<size_t>(patch.info.bytes()));
  write_volume(path, patch);
}

void run(Arguments arguments) {
  const Options options = parse_config("", ".", arguments.overrides).options;
  AugmentTimingRequest& request = arguments.request;
  request.augmentation = options.augmentation;
  request.patch = options.data.patch_size;
  const Extent3 around{request.patch.z * 2, request.patch.y * 2, request.patch.x * 2};
  Volume image = arguments.image.empty() ? random_bytes(around, 256) : read_volume(arguments.image);
  if (image.info.dtype == DType::kUInt8) image.info.scale = 1.0 / 255;  // the gather scales as it reads
  const Volume label = arguments.label.empty() ? random_bytes(image.info.extent, 2) : read_volume(arguments.label);
  const AugmentTiming timing = time_augmentation(image, label, request);
  json row = timing_summary("augment", timing.wall_ms);
  row["cpu_ms"] = timing_summary("", timing.cpu_ms)["median_ms"];
  row["mean_cpu_ms"] =
      std::accumulate(timing.cpu_ms.begin(), timing.cpu_ms.end(), 0.0) / static_cast<double>(timing.cpu_ms.size());
  row["all_cpu_ms"] = timing.cpu_ms;
  write_patch(arguments.output, request.patch, DType::kFloat32, timing.patch.data());
  write_patch(arguments.label_output, request.patch, DType::kUInt8, timing.label.data());
  print_results(json::array({row}), arguments.as_json);
}

}  // namespace

void define_bench_augment(CLI::App& command) {
  auto arguments = std::make_shared<Arguments>();
  command.add_option("overrides", arguments->overrides, "augmentation.preset=nnunet data.patch_size=128,128,128 ...");
  command.add_option("--image", arguments->image, "volume to cut from; absent: uint8 noise of twice the patch's size");
  command.add_option("--label", arguments->label, "its label; absent: noise of two labels");
  command.add_option("--seed", arguments->request.seed, "of what is drawn");
  command.add_option("--first-sample", arguments->request.first_sample, "number of the first sample")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--repeats", arguments->request.repeats, "samples to time")->check(CLI::Range(1, 100000));
  command.add_option("--output", arguments->output, "write the last image here");
  command.add_option("--label-output", arguments->label_output, "write the last label here");
  command.add_flag("--json", arguments->as_json, "one JSON document on standard output");
  command.callback([arguments] { run(*arguments); });
}

}  // namespace vox::cli
