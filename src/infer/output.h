// What a case becomes on disk: the raw voxels of its prediction brought back to the grid and the axes of its file,
// post-processed and written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/volume.h"
#include "infer/decode.h"
#include "infer/part_file.h"

namespace vox {

class ThreadPool;

struct OutputOptions {
  DecodeOptions decode;
  std::vector<PostOptions> postprocess{};  // of a prediction of one class
  std::string orientation = "keep";        // data.orientation: the result goes back to the axes of the file
  std::string format = "tif";              // suffix
};

// Probability from which a voxel is foreground, also of a chain that begins with `threshold`. Error where the chain
// begins with a step that has levels of its own.
void use_threshold(OutputOptions& options, double threshold);

class CaseOutput {
 public:
  // `file` describes the case's first image, `extent` is what the network saw of it (after preprocessing). Error where
  // the format cannot hold the result, before anything is computed.
  CaseOutput(const std::filesystem::path& path, const VolumeInfo& file, const Extent3& extent, int64_t channels,
             const OutputOptions& options);

  const VolumeInfo& part_info() const { return part_info_; }  // of the raw voxels
  // Slices as the network gave them, in the form that the raw voxels have.
  std::vector<std::byte> encode(const Slab& slab) const;
  int64_t whole_volume_bytes() const;  // memory that finish() needs; 0 where it passes over the file once
  void finish(const PartFile& part, ThreadPool* pool) const;

 private:
  bool on_file_grid() const { return part_info_.extent == turned_.extent; }
  bool is_plain() const;

  std::filesystem::path path_;
  VolumeInfo file_;    // as it lies on disk
  VolumeInfo turned_;  // and in the axes that the network saw
  VolumeInfo part_info_;
  OutputOptions options_;
  PostChain chain_;
  int64_t channels_;
  bool keeps_logits_ = false;  // raw voxels are logits: something is done to them before they become labels
};

}  // namespace vox
