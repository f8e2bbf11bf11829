// Choices among kernels (ops/kernel_choice.h) from one process to the next: kernels.json in the cache folder for all
// runs, kernels.json in a run for its own, and the metadata of its checkpoints.
#pragma once

#include <filesystem>

#include "ops/kernel_choice.h"

namespace vox {

// Before the first step. What a checkpoint says goes before what other runs found meanwhile. A file that cannot be read
// counts as absent: it only saves time.
void recall_kernel_choices(const std::filesystem::path& cache_folder, const ops::KernelChoices& of_checkpoint);

// Where there are any; only what is new is written. No run: an empty path.
void keep_kernel_choices(const std::filesystem::path& cache_folder, const std::filesystem::path& run);

}  // namespace vox
