// A prediction under way on disk: raw voxels under a hidden name beside the output, written slice by slice, and a small
// file that says how far it is and of what. The same command goes on from there after an interruption.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "base/file.h"
#include "base/volume.h"

namespace vox {

class PartFile {
 public:
  // Goes on where an earlier run of the same `fingerprint` (weights, input, settings) stopped, else starts afresh.
  // Error where another process writes the same output.
  PartFile(const std::filesystem::path& output, const std::string& fingerprint, const VolumeInfo& info);
  ~PartFile();
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  const VolumeInfo& info() const { return info_; }
  int64_t slices_done() const { return slices_done_; }
  int64_t slices_set_aside() const { return slices_set_aside_; }  // finished by a run of another fingerprint
  // Slices z_begin .. z_end of all channels: channel, z, y, x.
  void write(int64_t z_begin, int64_t z_end, const std::byte* voxels);
  void mark_done(int64_t slices);  // those before `slices` are safe on the disk

  Volume read() const;  // the voxels, in memory
  // Calls `use` with the voxels as they lie on the disk, described as `info` says (spacing, affine). Pages that a
  // reader has passed are given back to the system, so that one who passes over them once holds a few at a time.
  void read_through(const VolumeInfo& info, const std::function<void(const Volume&)>& use) const;
  // The output is written: the raw voxels go, and a note stays that this case is finished.
  void finish();

 private:
  std::filesystem::path voxels_, progress_;
  std::string fingerprint_;
  VolumeInfo info_;
  int64_t slices_done_ = 0, slices_set_aside_ = 0;
  std::unique_ptr<FileLock> lock_;
  int descriptor_ = -1;
};

// An earlier run of the same command, interrupted later, has written this output.
bool is_finished(const std::filesystem::path& output, const std::string& fingerprint);
void forget_finished(const std::filesystem::path& output);  // the whole command is done: the notes go

}  // namespace vox
