// Truth: every allocation of this program is counted.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

#include "base/random.h"
#include "kernels/blur.h"
#include "post/post.h"

namespace {

std::atomic<int64_t> bytes_now{0}, bytes_most{0};

}  // namespace

void* operator new(size_t bytes) {
  void* const block = std::malloc(bytes);
  if (!block) throw std::bad_alloc();
  const int64_t now = bytes_now += static_cast<int64_t>(malloc_usable_size(block));
  if (now > bytes_most) bytes_most = now;
  return block;
}
void operator delete(void* block) noexcept {
  bytes_now -= static_cast<int64_t>(malloc_usable_size(block));
  std::free(block);
}
void operator delete(void* block, size_t) noexcept {
  operator delete(block);
}

namespace vox {
namespace {

// Three channels that look like a network's: smooth, with a foreground of thin winding pieces.
PostVolume smooth_volume() {
  PostVolume volume{.extent = {48, 64, 64}, .channels = 3};
  const int64_t voxels = volume.extent.voxels();
  Random random(1, 0, kSynthStream);
  for (int64_t i = 0; i < 3 * voxels; ++i) volume.probability.push_back(static_cast<float>(random.uniform()));
  for (int64_t channel = 0; channel < 3; ++channel)
    gaussian_blur_cpu(volume.probability.data() + channel * voxels, volume.extent, {1.5, 1.5, 1.5});
  for (float& value : volume.probability) value = std::clamp(0.5f + 8 * (value - 0.5f), 0.0f, 1.0f);
  volume.mask.resize(static_cast<size_t>(voxels));
  for (size_t i = 0; i < volume.mask.size(); ++i) volume.mask[i] = volume.probability[i] > 0.5f;
  return volume;
}

TEST(PostMemory, NoStepTakesMoreThanItSays) {
  const PostVolume start = smooth_volume();
  for (const PostEntry& entry : all_post_steps()) {
    PostVolume volume = start;
    if (entry.kind == PostKind::kCut) {
      volume.channels = 1;
      volume.probability.resize(volume.mask.size());
      volume.probability.shrink_to_fit();
    }
    const PostChain chain({PostOptions{.name = entry.name, .params = {}}});
    const int64_t before = bytes_now;
    bytes_most = before;
    chain.run(volume);
    const int64_t voxels = volume.extent.voxels(), most = chain.bytes_per_voxel(volume.channels) * voxels;
    EXPECT_LE(bytes_most - before, most + (int64_t{1} << 18)) << entry.name;
  }
}

}  // namespace
}  // namespace vox
