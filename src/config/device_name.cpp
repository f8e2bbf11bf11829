#include "config/device_name.h"

namespace vox {

bool is_device_name(const std::string& name) {
  const bool numbered = name.starts_with("cuda:") && name.size() > 5 && name.size() < 9 &&
                        name.find_first_not_of("0123456789", 5) == std::string::npos;
  return name == "cpu" || name == "cuda" || numbered;
}

}  // namespace vox
