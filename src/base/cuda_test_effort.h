// How much a GPU test does. With VOXLOOM_SMALL_TESTS=1 it does a few small cases, for tools under which a kernel takes
// a hundred times as long (compute-sanitizer, see docs/gpu.md).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace vox::cuda {

inline bool small_tests() {
  return std::getenv("VOXLOOM_SMALL_TESTS") != nullptr;
}
inline int cases(int all) {
  return small_tests() ? std::min(all, 3) : all;
}
// Of the same data, to be compared bit for bit.
inline int launches() {
  return small_tests() ? 2 : 150;
}
inline int64_t side(int64_t longest) {
  return small_tests() ? std::min<int64_t>(longest, 9) : longest;
}

}  // namespace vox::cuda
