// A heap of the voxels at the edge of the flood. Heights become integers that sort alike, joined with the time of
// arrival in one key, so that an item is 16 bytes and a comparison one instruction.
#include "kernels/watershed.h"

#include <bit>
#include <queue>

#include "base/error.h"

namespace vox {
namespace {

uint32_t sortable(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value + 0.0f);  // -0 is 0
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

struct Shore {
  uint64_t key;  // height, then time of arrival
  uint32_t voxel;
  bool operator>(const Shore& other) const { return key > other.key; }
};

std::vector<Extent3> neighbours_of(Connectivity connectivity) {
  const int64_t most_steps = connectivity == Connectivity::kFaces ? 1 : connectivity == Connectivity::kEdges ? 2 : 3;
  std::vector<Extent3> steps;
  for (int64_t z = -1; z <= 1; ++z)
    for (int64_t y = -1; y <= 1; ++y)
      for (int64_t x = -1; x <= 1; ++x)
        if (const int64_t count = z * z + y * y + x * x; count > 0 && count <= most_steps) steps.push_back({z, y, x});
  return steps;
}

bool inside(const Extent3& at, const Extent3& extent) {
  for (int axis = 0; axis < 3; ++axis)
    if (at[axis] < 0 || at[axis] >= extent[axis]) return false;
  return true;
}

}  // namespace

void watershed_cpu(uint32_t* labels, const float* height, const uint8_t* mask, const Extent3& extent,
                   Connectivity connectivity) {
  VOX_ASSERT(extent.voxels() < int64_t{UINT32_MAX});
  std::priority_queue<Shore, std::vector<Shore>, std::greater<>> shore;
  const auto reach = [&](int64_t voxel, uint32_t time) {
    shore.push({uint64_t{sortable(height[voxel])} << 32 | time, static_cast<uint32_t>(voxel)});
  };
  for (int64_t voxel = 0; voxel < extent.voxels(); ++voxel) {
    if (mask && !mask[voxel]) labels[voxel] = 0;
    if (labels[voxel] != 0) reach(voxel, 0);
  }
  const std::vector<Extent3> steps = neighbours_of(connectivity);
  uint32_t time = 0;
  while (!shore.empty()) {
    const int64_t voxel = shore.top().voxel;
    shore.pop();
    const Extent3 at{voxel / (extent.y * extent.x), voxel / extent.x % extent.y, voxel % extent.x};
    for (const Extent3& step : steps) {
      const Extent3 to = at + step;
      if (!inside(to, extent)) continue;
      const int64_t next = (to.z * extent.y + to.y) * extent.x + to.x;
      if (labels[next] != 0 || (mask && !mask[next])) continue;
      labels[next] = labels[voxel];
      reach(next, ++time);
    }
  }
}

}  // namespace vox
