#include "augment/intensity.h"

#include <algorithm>
#include <cmath>

namespace vox {

std::vector<int64_t> draw_sections(int64_t most, int64_t sections, Random& random) {
  const int64_t count = std::min(1 + random.below(most), sections);
  std::vector<int64_t> struck;
  while (static_cast<int64_t>(struck.size()) < count) {
    const int64_t section = random.below(sections);
    if (std::find(struck.begin(), struck.end(), section) == struck.end()) struck.push_back(section);
  }
  std::sort(struck.begin(), struck.end());
  return struck;
}

std::string listed(const std::vector<int64_t>& numbers) {
  std::vector<std::string> texts;
  for (const int64_t number : numbers) texts.push_back(std::to_string(number));
  return join(texts, ",");
}

Box3 draw_box(const Extent3& patch, const std::vector<double>& share, const char* option, Random& random) {
  Box3 box;
  for (int axis = 0; axis < 3; ++axis) {
    const double side = draw_between(share, option, random) * static_cast<double>(patch[axis]);
    const int64_t voxels = std::clamp<int64_t>(std::llround(side), 1, patch[axis]);
    box.begin[axis] = random.below(patch[axis] - voxels + 1);
    box.end[axis] = box.begin[axis] + voxels;
  }
  return box;
}

}  // namespace vox
