// One checkpoint on disk: a safetensors file whose last tensor, `voxloom.crc32c`, holds one checksum per tensor before
// it (in file order) and one of the header, the eight bytes of its length included. Every byte of the file is covered,
// so a flipped one is noticed. No torch: bytes in, bytes out.
#pragma once

#include <filesystem>
#include <vector>

#include "base/buffer.h"
#include "nets/safetensors.h"

namespace vox {

// Whole or not at all: a temporary name, synced, renamed.
void write_checkpoint_file(const std::filesystem::path& path, const Metadata& metadata,
                           const std::vector<TensorToStore>& tensors);

struct CheckpointFile {
  std::filesystem::path path;
  Metadata metadata;
  std::vector<TensorToStore> tensors;  // point into `bytes`; the checksums are left out
  Buffer bytes;
};

// Error where the file is not whole, was changed since it was written, or is not one of ours.
CheckpointFile read_checkpoint_file(const std::filesystem::path& path);

// The metadata alone, the header verified and the tensors not read.
Metadata read_checkpoint_metadata(const std::filesystem::path& path);

}  // namespace vox
