#include "train/kernel_cache.h"

#include <nlohmann/json.hpp>

#include "base/file.h"

namespace vox {
namespace {

constexpr const char* kFile = "kernels.json";

ops::KernelChoices read_choices(const fs::path& file) {
  try {
    if (!fs::exists(file)) return {};
    return nlohmann::json::parse(read_file(file)).get<ops::KernelChoices>();
  } catch (const std::exception&) {
    return {};
  }
}

void add_choices(const fs::path& file, const ops::KernelChoices& choices) {
  const ops::KernelChoices before = read_choices(file);
  ops::KernelChoices all = choices;
  all.insert(before.begin(), before.end());
  if (all == before) return;
  OutputFile output(file);
  output.write(nlohmann::json(all).dump(1) + "\n");
  output.commit();
}

}  // namespace

void recall_kernel_choices(const fs::path& cache_folder, const ops::KernelChoices& of_checkpoint) {
  ops::adopt_kernel_choices(read_choices(cache_folder / kFile));
  ops::adopt_kernel_choices(of_checkpoint);
}

void keep_kernel_choices(const fs::path& cache_folder, const fs::path& run) {
  const ops::KernelChoices choices = ops::kernel_choices();
  if (choices.empty()) return;
  if (!run.empty()) add_choices(run / kFile, choices);
  try {
    add_choices(cache_folder / kFile, choices);
  } catch (const std::exception&) {  // a cache folder that cannot be written to costs the next run a second
  }
}

}  // namespace vox
