// voxloom inspect PATH|CONFIG [--json] [--sample N [--picture FILE.png]]: shape, type, spacing, intensities, label
// counts, and what is wrong.
#include "cli/inspect.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "cli/command.h"
#include "cli/inspect_volume.h"
#include "cli/json_text.h"
#include "io/orientation.h"

namespace vox::cli {
namespace {

using nlohmann::ordered_json;

ordered_json optional_number(bool there, double value) {
  return there ? ordered_json(value) : ordered_json(nullptr);
}

ordered_json to_json(const VolumeFacts& facts) {
  const VolumeInfo& info = facts.info;
  const bool any = facts.values.count > 0;
  ordered_json out;
  out["shape"] = {info.extent.z, info.extent.y, info.extent.x};
  if (info.channels > 1) out["shape"].insert(out["shape"].begin(), info.channels);
  out["dtype"] = name_of(info.dtype);
  out["spacing"] = nullptr;
  if (info.spacing) out["spacing"] = {info.spacing->z_mm, info.spacing->y_mm, info.spacing->x_mm};
  out["minimum"] = optional_number(any, facts.values.minimum);
  out["maximum"] = optional_number(any, facts.values.maximum);
  out["mean"] = optional_number(any, facts.values.mean);
  out["std"] = optional_number(any, facts.values.deviation());
  out["labels"] = nullptr;
  if (facts.labels) {
    out["labels"] = ordered_json::object();
    for (const auto& [value, voxels] : *facts.labels) out["labels"][std::to_string(value)] = voxels;
  }
  out["problems"] = facts.problems;
  out["channels"] = info.channels;
  out["format"] = info.format;
  out["codec"] = info.codec;
  out["scale"] = info.scale;
  out["offset"] = info.offset;
  out["affine"] = nullptr;
  out["orientation"] = nullptr;
  if (info.affine) {
    out["affine"] = *info.affine;
    out["orientation"] = axis_codes(*info.affine);
  }
  return out;
}

void print_labels(const LabelCounts& labels, int64_t voxels) {
  constexpr size_t kMostRows = 16, kMostLabels = 64;  // with more values it is rather an image
  const bool many = labels.size() > kMostLabels;
  std::cout << "labels       " << labels.size() << " different values" << (many ? "; --json counts each" : "") << '\n';
  if (many) return;
  size_t row = 0;
  for (const auto& [value, count] : labels) {
    if (row++ == kMostRows) break;
    const double percent = 100.0 * static_cast<double>(count) / static_cast<double>(voxels);
    std::cout << "  " << value << ": " << count << " voxels, " << format_number(percent, 2) << " %\n";
  }
  if (labels.size() > kMostRows) std::cout << "  and " << labels.size() - kMostRows << " more; --json shows all\n";
}

void print(const VolumeFacts& facts) {
  const VolumeInfo& info = facts.info;
  const Moments& values = facts.values;
  const std::string channels = info.channels > 1 ? concat(", ", info.channels, " channels") : "";
  std::cout << "shape        " << info.extent << " (z, y, x)" << channels << '\n';
  std::cout << "type         " << name_of(info.dtype) << ", " << info.format << ", codec " << info.codec << '\n';
  std::cout << "spacing      ";
  if (info.spacing)
    std::cout << *info.spacing << " mm\n";
  else
    std::cout << "not said\n";
  if (info.affine) std::cout << "orientation  " << axis_codes(*info.affine) << '\n';
  if (info.scale != 1 || info.offset != 0)
    std::cout << "scale        value = stored * " << info.scale << " + " << info.offset << '\n';
  if (values.count > 0)
    std::cout << "values       " << values.minimum << " to " << values.maximum << ", mean " << values.mean << ", std "
              << values.deviation() << '\n';
  if (facts.labels) print_labels(*facts.labels, info.voxels());
  for (const std::string& problem : facts.problems) std::cout << "problem      " << problem << '\n';
  if (facts.problems.empty()) std::cout << "no problems found\n";
}

VolumeFacts facts_of(const std::string& name, ThreadPool& pool) {
  try {
    return inspect_volume(name, pool);
  } catch (const Error& error) {
    if (!std::filesystem::is_directory(name)) throw;
    throw Error(concat(error.what(), ". Of a folder of data `voxloom init ", name,
                       " --output recipe.yaml` makes a recipe, and `voxloom inspect recipe.yaml` then looks at it all"),
                error.fault());
  }
}

void run(const InspectRequest& request) {
  VOX_CHECK(request.picture.empty() || request.sample >= 0, "--picture shows a sample; say which with --sample N");
  const bool recipe = ends_with(request.name, ".yaml") || ends_with(request.name, ".yml");
  VOX_CHECK(recipe || request.sample < 0, "--sample shows what a recipe draws, but ", request.name,
            " is no recipe (.yaml)");
  if (recipe) return request.sample < 0 ? inspect_config(request) : inspect_sample(request);
  VOX_CHECK(request.overrides.empty(), "\"", request.overrides.front(),
            "\" changes a recipe, but a volume is inspected; leave it out");
  ThreadPool pool(available_cpus());
  const VolumeFacts facts = facts_of(request.name, pool);
  if (request.as_json)
    std::cout << json_text(to_json(facts));
  else
    print(facts);
}

void define(CLI::App& command) {
  auto request = std::make_shared<InspectRequest>();
  command.add_option("path", request->name, "a volume (PATH or PATH:DATASET), or a recipe (.yaml)")->required();
  command.add_option("overrides", request->overrides, "key=value ... of a recipe");
  command.add_option("--sample", request->sample, "number of a training sample: what augmentation draws for it")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--picture", request->picture, "PNG to write of the sample: slices, and labels over them");
  command.add_flag("--json", request->as_json, "one JSON document on standard output");
  command.callback([request] { run(*request); });
}

}  // namespace

CommandEntry inspect_command() {
  return {"inspect", "Shape, type, spacing, intensities, labels, and what is wrong with the data", define};
}

}  // namespace vox::cli
