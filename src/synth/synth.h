// Synthetic data sets, in the folder layout of the job they stand for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/shape.h"
#include "base/volume.h"

namespace vox {

class ThreadPool;

struct SynthRequest {
  std::string folder;
  int64_t count = 4;
  Extent3 size{128, 128, 128};
  uint64_t seed = 0;
  double thickness = 1;         // of a section, in widths of a voxel; for mitochondria
  std::string suffix = ".tif";  // of the volumes: chooses the format; empty: folders in the layout of OpenKBP
};

struct SynthEntry {
  std::string name, help;
  void (*make)(const SynthRequest& request, ThreadPool& pool);
};
const std::vector<SynthEntry>& all_synths();

// Makes `kind` in request.folder: whole volumes appear under their names one by one, and a last file `.synth.json` says
// that all are there and by which request. A folder made by the same request is left alone, one made by another is an
// Error; several processes may ask at once.
void make_synthetic(const std::string& kind, const SynthRequest& request, ThreadPool& pool);

// What make_synthetic would refuse, without making anything.
void check_synthetic(const std::string& kind, const SynthRequest& request);

struct SynthPair {
  Volume image, label;
};
using ScrollPair = SynthPair;

// One scroll: image (uint8) and label (0 background, 1 papyrus, 2 unlabeled).
ScrollPair make_scroll(const Extent3& size, uint64_t seed, ThreadPool& pool);

// Tissue in electron microscopy: image (uint8) and label (1 mitochondria). Sections are `thickness` times as thick as
// voxels are wide.
SynthPair make_mitochondria(const Extent3& size, uint64_t seed, double thickness, ThreadPool& pool);

}  // namespace vox
