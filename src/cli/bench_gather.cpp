// voxloom bench gather: one core rotates and scales a patch, afresh every time.
#include <CLI/CLI.hpp>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "augment/gather_timing.h"
#include "cli/bench.h"
#include "io/format.h"

namespace vox::cli {
namespace {

using nlohmann::json;

struct Arguments {
  std::string volume, output;
  int64_t size = 128;
  GatherTimingRequest request;
  bool as_json = false;
};

Volume noise_volume(int64_t size) {
  Volume volume = allocate_volume({.dtype = DType::kUInt8, .extent = {size, size, size}});
  const Random random(0, 0, kSynthStream);
  for (int64_t i = 0; i < volume.info.extent.voxels(); ++i)
    volume.data.as<uint8_t>()[i] = static_cast<uint8_t>(random.bits_at(static_cast<uint32_t>(i)));
  return volume;
}

void write_patch(const std::string& path, const GatherTiming& timing, const Extent3& extent) {
  Volume patch = allocate_volume({.dtype = DType::kFloat32, .extent = extent});
  std::memcpy(patch.data.data(), timing.patch.data(), timing.patch.size() * sizeof(float));
  write_volume(path, patch);
}

void run(Arguments arguments) {
  const Volume volume = arguments.volume.empty() ? noise_volume(arguments.size) : read_volume(arguments.volume);
  arguments.request.patch = {arguments.size, arguments.size, arguments.size};
  const GatherTiming timing = time_gather(volume, arguments.request);
  json row = timing_summary("gather rotate+scale", timing.wall_ms);
  row["cpu_ms"] = timing_summary("", timing.cpu_ms)["median_ms"];
  const GatherMap& map = timing.map;
  row["map"] = {{"matrix", map.matrix}, {"offset", map.offset}, {"origin", {map.origin.z, map.origin.y, map.origin.x}}};
  if (!arguments.output.empty()) write_patch(arguments.output, timing, arguments.request.patch);
  print_results(json::array({row}), arguments.as_json);
}

}  // namespace

void define_bench_gather(CLI::App& command) {
  auto arguments = std::make_shared<Arguments>();
  command.add_option("--volume", arguments->volume, "volume to cut from, about its centre; absent: uint8 noise");
  command.add_option("--size", arguments->size, "side of the patch")->check(CLI::Range(1, 1024));
  command.add_option("--seed", arguments->request.seed, "of the angles and scales");
  command.add_option("--repeats", arguments->request.repeats, "patches to time")->check(CLI::Range(1, 100000));
  command.add_option("--output", arguments->output, "write the last patch here");
  command.add_flag("--json", arguments->as_json, "one JSON document on standard output");
  command.callback([arguments] { run(*arguments); });
}

}  // namespace vox::cli
