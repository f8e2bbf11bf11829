#include "volume/foreground.h"

#include <cmath>
#include <type_traits>
#include <utility>

namespace vox {

void LabelScan::Kept::add(int64_t voxel) {
  if (seen++ % stride != 0) return;
  if (static_cast<int64_t>(voxels.size()) == kMostVoxels) {
    for (size_t i = 0; i < voxels.size() / 2; ++i) voxels[i] = voxels[2 * i];
    voxels.resize(voxels.size() / 2);
    stride *= 2;
    if ((seen - 1) % stride != 0) return;
  }
  voxels.push_back(voxel);
}

template <class T>
void LabelScan::add_typed(const T* data, int64_t count, double scale, double offset) {
  const bool plain = std::is_same_v<T, uint8_t> && scale == 1 && offset == 0;
  for (int64_t i = 0; i < count;) {
    const T stored = data[i];
    int64_t end = i + 1;
    while (end < count && data[end] == stored) ++end;  // labels come in runs
    const double value = static_cast<double>(stored) * scale + offset;
    if (!plain && !(value >= 0 && value <= 255 && value == std::floor(value))) {
      if (bad_count_ == 0) first_bad_value_ = value;
      bad_count_ += end - i;
    } else {
      const auto label = static_cast<size_t>(value);
      counts_[label] += end - i;
      if (label != 0)
        for (int64_t voxel = i; voxel < end; ++voxel) kept_[label].add(done_ + voxel);
    }
    i = end;
  }
  done_ += count;
}

void LabelScan::add(const std::byte* data, DType dtype, int64_t count, double scale, double offset) {
  with_type(dtype, [&](auto tag) {
    using T = decltype(tag);
    add_typed(reinterpret_cast<const T*>(data), count, scale, offset);
  });
}

std::vector<std::pair<int64_t, int64_t>> LabelScan::counts() const {
  std::vector<std::pair<int64_t, int64_t>> found;
  for (size_t value = 0; value < counts_.size(); ++value)
    if (counts_[value] > 0) found.emplace_back(static_cast<int64_t>(value), counts_[value]);
  return found;
}

std::map<int64_t, std::vector<int64_t>> LabelScan::take_foreground() {
  std::map<int64_t, std::vector<int64_t>> found;
  for (size_t value = 1; value < kept_.size(); ++value)
    if (!kept_[value].voxels.empty()) found[static_cast<int64_t>(value)] = std::move(kept_[value].voxels);
  return found;
}

}  // namespace vox
