// For tests: the seed of random cases, VOXLOOM_SEED where it is set, else another one every time. Tests tell it when
// they fail.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>

namespace vox {

inline uint32_t drawn_seed() {
  const char* given = std::getenv("VOXLOOM_SEED");
  return given ? static_cast<uint32_t>(std::stoull(given)) : std::random_device{}();
}

}  // namespace vox
