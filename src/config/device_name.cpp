#include "config/device_name.h"

#include <cstdlib>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace vox {
namespace {

constexpr const char* kVisible = "CUDA_VISIBLE_DEVICES";
bool one_gpu = false;

}  // namespace

bool is_device_name(const std::string& name) {
  const bool numbered = name.starts_with("cuda:") && name.size() > 5 && name.size() < 9 &&
                        name.find_first_not_of("0123456789", 5) == std::string::npos;
  return name == "cpu" || name == "cuda" || numbered;
}

int gpu_number(const std::string& name) {
  return name.starts_with("cuda:") ? std::stoi(name.substr(5)) : 0;
}

std::string visible_gpu(int number) {
  const char* const given = std::getenv(kVisible);
  if (!given) return std::to_string(number);
  const std::vector<std::string> names = split(given, ',');
  VOX_CHECK(number < static_cast<int>(names.size()) && !names[static_cast<size_t>(number)].empty(), "GPU ", number,
            " is asked for, counted from 0, but ", kVisible, " is \"", given, "\"");
  return names[static_cast<size_t>(number)];
}

void see_only(const std::string& name) {
  if (!is_device_name(name) || gpu_number(name) == 0) return;
  setenv(kVisible, visible_gpu(gpu_number(name)).c_str(), /*overwrite=*/1);
  one_gpu = true;
}

bool sees_one_gpu() {
  return one_gpu;
}

}  // namespace vox
