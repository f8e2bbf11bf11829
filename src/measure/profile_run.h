// What the ways of measuring a run share.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "measure/profile.h"
#include "train/trainer.h"

namespace vox {

class ScratchFolder {  // gone with its owner
 public:
  explicit ScratchFolder(const std::string& stem);
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

TrainRequest measuring_request(const ProfileRequest& request, const ScratchFolder& folder);
// Loads what the store keeps whole, as the first epoch would; ends early after `seconds`.
void warm_store(Store& store, double seconds);
double process_cpu_ms();
double machine_cpu_ms();  // of all processes since the machine started
double peak_resident_gb();
bool enough_steps(const std::vector<double>& step_ms, double seconds);  // for a median that stands

}  // namespace vox
