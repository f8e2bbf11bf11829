#include "pipeline/sample_context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "augment/test_options.h"
#include "base/thread_pool.h"
#include "pipeline/pipeline.h"
#include "volume/test_volumes.h"

namespace vox {
namespace {

using ::testing::ElementsAre;

const Extent3 kExtent{16, 18, 20};

// Two cases of four channels: values, a mask of 0 and 1, a mask of 0 and 200 that is empty in one case, values.
class SampleContextTest : public ::testing::Test {
 protected:
  SampleContextTest() {
    for (int64_t i = 0; i < 2; ++i) {
      const auto inside = [](int64_t voxel) { return voxel / (18 * 20) >= 5 && voxel % 20 < 12; };
      Random random(static_cast<uint64_t>(i), 0, 7);
      const auto write = [&](const std::string& kind, const Volume& volume) {
        write_volume(folder_ / concat(kind, "/case", i, ".npy"), volume);
      };
      write("a", noise_volume<uint8_t>(kExtent, 3, 0, 255));
      write("b", make_volume<uint8_t>(kExtent, [&](int64_t voxel) { return inside(voxel) ? 1 : 0; }));
      write("c", make_volume<uint8_t>(kExtent, [&](int64_t) { return i == 0 && random.chance(0.3) ? 200 : 0; }));
      write("d", noise_volume<float>(kExtent, 4, 0, 1));
      write("mask", make_volume<uint8_t>(kExtent, [&](int64_t voxel) { return inside(voxel) ? 1 : 0; }));
    }
    data_.root = folder_.path().string();
    data_.images = {"a/*.npy", "b/{id}.npy", "c/{id}.npy", "d/{id}.npy"};
    data_.mask = "mask/{id}.npy";
    data_.cache_dir = folder_ / "cache";
    data_.split = "none";
    data_.patch_size = kExtent;
    ThreadPool pool(2);
    store_ = std::make_shared<Store>(make_dataset(data_, 0, 1), data_, pool);
  }

  TemporaryFolder folder_;
  DataOptions data_;
  std::shared_ptr<Store> store_;
};

TEST_F(SampleContextTest, ChannelsOfTwoValuesAreMasks) {
  EXPECT_THAT(continuous_channels(*store_), ElementsAre(0, 3));
}

TEST_F(SampleContextTest, MasksAmongTheChannelsKeepTheirValuesUnderEveryTransformOfValues) {
  AugmentationOptions all = all_on();
  for (Switch* spatial : std::initializer_list<Switch*>{&all.flip, &all.rot90, &all.transpose, &all.rotate, &all.scale,
                                                        &all.shift, &all.shear, &all.elastic, &all.misalignment})
    spatial->enabled = false;
  const PipelineOptions options{.seed = 1, .batch_size = 2, .batches = 2};
  Pipeline plain(store_, data_, {}, options), augmented(store_, data_, all, options);
  Batch before, after;
  while (plain.next(before)) {
    ASSERT_TRUE(augmented.next(after));
    const auto* a = reinterpret_cast<const float*>(before.arrays.at("image").data);
    const auto* b = reinterpret_cast<const float*>(after.arrays.at("image").data);
    for (int64_t channel = 0; channel < 8; ++channel) {
      const int64_t first = channel * kExtent.voxels();
      const bool same = std::equal(a + first, a + first + kExtent.voxels(), b + first);
      EXPECT_EQ(same, channel % 4 == 1 || channel % 4 == 2) << channel;
    }
  }
}

TEST_F(SampleContextTest, TheMaskSaysWhatAShiftMustKeep) {
  AugmentationOptions options;
  options.shift.enabled = true;
  EXPECT_FALSE(SampleContexts(store_, kExtent, options).of(0, {}).kept.has_value());
  options.shift.keep = "mask";
  const SampleContexts contexts(store_, kExtent, options);
  EXPECT_EQ(contexts.of(1, {}).kept, (Box3{{5, 0, 0}, {16, 18, 12}}));
  EXPECT_EQ(SampleContexts(store_, {8, 8, 8}, options).of(1, {4, 2, 8}).kept, (Box3{{1, 0, 0}, {8, 8, 4}}));
  EXPECT_FALSE(SampleContexts(store_, {4, 8, 8}, options).of(1, {0, 2, 8}).kept.has_value());
}

}  // namespace
}  // namespace vox
