// A folder for what is only measured, gone with its owner.
#pragma once

#include <filesystem>
#include <string>

namespace vox {

// Names the folder in which a child process makes its own: whoever ends the child removes them with it.
inline constexpr const char* kScratchVariable = "VOXLOOM_SCRATCH";

class ScratchFolder {
 public:
  explicit ScratchFolder(const std::string& stem);
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace vox
