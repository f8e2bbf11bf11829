#include "volume/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <map>
#include <thread>

#include "base/thread_pool.h"
#include "volume/shelf.h"
#include "volume/test_volumes.h"

namespace vox {
namespace {

using testing::HasSubstr;

constexpr Extent3 kExtent{40, 70, 50};

double image_value(int64_t number, int64_t voxel) {
  return static_cast<double>((voxel * 7 + voxel / 64 + number * 13) % 251);
}
double label_value(int64_t voxel) {
  return voxel % 97 == 0 ? 2 : voxel % 5 == 0 ? 1 : 0;
}

// `count` cases of image and label as deflated NIfTI (which has no cheap boxes) or plain NumPy files.
class StoreTest : public testing::Test {
 protected:
  DataOptions make_cases(int64_t count, const std::string& suffix = ".npy") {
    for (int64_t i = 0; i < count; ++i) {
      write_volume(folder_ / ("images/c" + std::to_string(i) + suffix),
                   make_volume<uint8_t>(kExtent, [&](int64_t v) { return image_value(i, v); }));
      write_volume(folder_ / ("labels/c" + std::to_string(i) + suffix), make_volume<uint8_t>(kExtent, label_value));
    }
    DataOptions data;
    data.root = folder_.path().string();
    data.images = {"images/*" + suffix};
    data.label = "labels/{id}" + suffix;
    data.split = "none";
    data.cache_dir = folder_ / "cache";
    data.cache_gb = 1;
    return data;
  }
  std::unique_ptr<Store> open(const DataOptions& data) {
    return std::make_unique<Store>(make_dataset(data, 0, 0), data, pool_);
  }
  void expect_right(const Block& block, int64_t number, Role role, const Box3& box) {
    ASSERT_TRUE(block.view.box.contains(box)) << block.view.box;
    ASSERT_EQ(block.view.extent, kExtent);
    for (int64_t z = box.begin.z; z < box.end.z; ++z)
      for (int64_t y = box.begin.y; y < box.end.y; ++y)
        for (int64_t x = box.begin.x; x < box.end.x; ++x) {
          const int64_t voxel = (z * kExtent.y + y) * kExtent.x + x;
          const double expected = role == Role::kImage ? image_value(number, voxel) : label_value(voxel);
          ASSERT_EQ(value_at(block.view, z, y, x), expected) << z << ' ' << y << ' ' << x;
        }
  }
  void expect_all_right(Store& store, int64_t count) {
    Random random(5, 0, 1);
    for (int64_t n = 0; n < 40; ++n) {
      const Extent3 size{1 + random.below(kExtent.z), 1 + random.below(kExtent.y), 1 + random.below(kExtent.x)};
      const Extent3 room = kExtent - size;
      const Extent3 begin{random.below(room.z + 1), random.below(room.y + 1), random.below(room.x + 1)};
      const Box3 box{begin, begin + size};
      const Role role = n % 2 ? Role::kLabel : Role::kImage;
      expect_right(store.fetch(n % count, role, 0, box), n % count, role, box);
    }
  }
  TemporaryFolder folder_;
  ThreadPool pool_{2};
};

TEST_F(StoreTest, WholeVolumesInMemoryAreDecodedOnce) {
  const auto store = open(make_cases(3));
  expect_all_right(*store, 3);
  EXPECT_EQ(store->counts().volumes_decoded, 6);
  EXPECT_EQ(store->counts().misses, 0);
  EXPECT_EQ(store->counts().resident_bytes, 6 * kExtent.voxels());
}

TEST_F(StoreTest, ASecondStartDecodesNothingBeforeItIsAsked) {
  const DataOptions data = make_cases(2);
  const auto first = open(data);
  const auto second = open(data);
  EXPECT_EQ(second->counts().volumes_decoded, 0);
  EXPECT_EQ(second->facts(1).label_counts, first->facts(1).label_counts);
  EXPECT_EQ(second->facts(1).channel_mean, first->facts(1).channel_mean);
  expect_all_right(*second, 2);
}

TEST_F(StoreTest, PackedFilesThatDoNotFitAreServedFromChunks) {
  DataOptions data = make_cases(6, ".nii.gz");
  data.cache_gb = 3.2 * static_cast<double>(kExtent.voxels()) / static_cast<double>(1 << 30);
  const auto store = open(data);
  expect_all_right(*store, 6);
  EXPECT_EQ(store->counts().volumes_decoded, 12);
  EXPECT_LE(store->counts().resident_peak, static_cast<int64_t>(data.cache_gb * (1 << 30)));
  const auto again = open(data);
  expect_all_right(*again, 6);
  EXPECT_EQ(again->counts().volumes_decoded, 0) << "the chunks were kept";
}

TEST_F(StoreTest, PlainFilesAreReadInPlaceWithoutACopy) {
  DataOptions data = make_cases(4);
  data.placement = "disk";
  data.cache_gb = 3e6 / (1 << 30);
  const auto store = open(data);
  expect_all_right(*store, 4);
  for (const auto& entry : fs::directory_iterator(data.cache_dir)) EXPECT_EQ(entry.path().extension(), ".facts");
}

TEST_F(StoreTest, ADamagedChunkFileIsRebuilt) {
  DataOptions data = make_cases(2, ".nii.gz");
  data.placement = "disk";
  data.cache_gb = 1.5 * static_cast<double>(kExtent.voxels()) / static_cast<double>(1 << 30);
  open(data);
  int damaged = 0;
  for (const auto& entry : fs::directory_iterator(data.cache_dir)) {
    if (entry.path().extension() != ".chunks") continue;
    std::string bytes = read_file(entry.path());
    bytes[bytes.size() - 100 - static_cast<size_t>(damaged)] ^= 1;
    write_file(entry.path(), bytes);
    ++damaged;
  }
  ASSERT_EQ(damaged, 4);
  const auto store = open(data);
  expect_all_right(*store, 2);
  EXPECT_GE(store->counts().volumes_decoded, 1);
}

TEST_F(StoreTest, CopiesThatNobodyUsedForLongAreRemoved) {
  DataOptions data = make_cases(2, ".nii.gz"), other = data;
  data.placement = other.placement = "disk";
  data.cache_gb = other.cache_gb = 1.5 * static_cast<double>(kExtent.voxels()) / static_cast<double>(1 << 30);
  other.images = {"images/c0.nii.gz"};  // half of the same cases
  const auto copies = [&] {
    std::map<std::string, int> count;
    for (const auto& entry : fs::directory_iterator(data.cache_dir)) ++count[entry.path().extension()];
    return count;
  };
  const std::map<std::string, int> all{{".chunks", 4}, {".facts", 2}, {".sealed", 4}, {".txt", 1}};
  write_file(fs::path(data.cache_dir) / "mine.txt", "not ours");
  open(data);
  ASSERT_EQ(copies(), all);
  for (const auto& entry : fs::directory_iterator(data.cache_dir))
    fs::last_write_time(entry.path(), fs::file_time_type::clock::now() - std::chrono::hours(24 * 91));
  other.cache_days = 92;
  open(other);
  other.cache_days = 0;
  open(other);
  EXPECT_EQ(copies(), all);
  other.cache_days = DataOptions{}.cache_days;
  const auto store = open(other);
  EXPECT_EQ(copies(), (std::map<std::string, int>{{".chunks", 2}, {".facts", 1}, {".sealed", 2}, {".txt", 1}}));
  EXPECT_EQ(store->counts().volumes_decoded, 0) << "what is used stays";
  expect_all_right(*open(data), 2);
}

TEST_F(StoreTest, ManyThreadsSeeOneDecodeAndTheRightVoxels) {
  const DataOptions data = make_cases(2);
  open(data);
  const auto store = open(data);  // facts are kept: nothing is resident yet
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int n = 0; n < 4; ++n) {
        const Box3 box{{n, 0, t}, {n + 3, 20, t + 9}};
        expect_right(store->fetch((n + t) % 2, Role::kImage, 0, box), (n + t) % 2, Role::kImage, box);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store->counts().volumes_decoded, 2);
}

TEST_F(StoreTest, FactsAndForegroundMatchTheVoxels) {
  const auto store = open(make_cases(1));
  double sum = 0, squares = 0;
  std::vector<int64_t> counts(3, 0);
  for (int64_t v = 0; v < kExtent.voxels(); ++v) {
    sum += image_value(0, v);
    squares += image_value(0, v) * image_value(0, v);
    ++counts[static_cast<size_t>(label_value(v))];
  }
  const double mean = sum / static_cast<double>(kExtent.voxels());
  const CaseFacts& facts = store->facts(0);
  EXPECT_NEAR(facts.channel_mean[0], mean, 1e-9);
  EXPECT_NEAR(facts.channel_std[0], std::sqrt(squares / static_cast<double>(kExtent.voxels()) - mean * mean), 1e-6);
  EXPECT_EQ(facts.label_counts,
            (std::vector<std::pair<int64_t, int64_t>>{{0, counts[0]}, {1, counts[1]}, {2, counts[2]}}));
  EXPECT_EQ(store->foreground_labels(0), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(store->label_values(), (std::vector<int64_t>{0, 1, 2}));
  int64_t lowest = kExtent.z, highest = 0;
  for (uint64_t pick = 0; pick < 10000; ++pick) {
    Extent3 voxel;
    ASSERT_TRUE(store->foreground_voxel(0, 1, pick, &voxel));
    ASSERT_EQ(label_value((voxel.z * kExtent.y + voxel.y) * kExtent.x + voxel.x), 1);
    lowest = std::min(lowest, voxel.z), highest = std::max(highest, voxel.z);
  }
  EXPECT_LE(lowest, 1);
  EXPECT_GE(highest, kExtent.z - 2) << "the list reaches over the whole volume";
  Extent3 none;
  EXPECT_FALSE(store->foreground_voxel(0, 9, 0, &none));
}

TEST_F(StoreTest, BadCasesAreNamedOrSkipped) {
  DataOptions data = make_cases(4);
  write_volume(folder_ / "labels/c0.npy", make_volume<uint8_t>({4, 5, 6}, [](int64_t) { return 0; }));
  write_volume(folder_ / "labels/c1.npy", make_volume<uint8_t>(kExtent, [](int64_t v) { return v < 3 ? 7 : 0; }));
  write_volume(folder_ / "images/c2.npy", make_volume<float>(kExtent, [](int64_t v) {
                 return v >= 60 && v < 62 ? std::numeric_limits<double>::quiet_NaN() : 1;
               }));
  data.labels = {0, 1, 2};
  EXPECT_THAT(error_of([&] { open(data); }), testing::AllOf(HasSubstr("case c0"), HasSubstr("4x5x6"),
                                                            HasSubstr("40x70x50"), HasSubstr("labels/c0.npy")));
  data.on_bad_case = "skip";
  const auto store = open(data);
  ASSERT_EQ(store->dataset().cases.size(), 1u);
  EXPECT_EQ(store->dataset().cases[0].id, "c3");
  EXPECT_EQ(store->dataset().train, std::vector<int64_t>{0});
  ASSERT_EQ(store->skipped().size(), 3u);
  EXPECT_THAT(store->skipped()[1].reason, testing::AllOf(HasSubstr("unknown value 7"), HasSubstr("3 voxels")));
  EXPECT_THAT(store->skipped()[2].reason,
              testing::AllOf(HasSubstr("2 NaN or infinite"), HasSubstr("z=0 y=1 x=10"), HasSubstr("images/c2.npy")));
  const Box3 box{{0, 0, 0}, {3, 3, 3}};
  expect_right(store->fetch(0, Role::kImage, 0, box), 3, Role::kImage, box);
}

TEST_F(StoreTest, AllCasesBadIsAnError) {
  DataOptions data = make_cases(2);
  data.labels = {0};
  data.on_bad_case = "skip";
  EXPECT_THAT(error_of([&] { open(data); }), HasSubstr("every one of the 2 cases is bad"));
}

TEST_F(StoreTest, LabelsBeyondAByteNeedRegression) {
  DataOptions data = make_cases(1);
  write_volume(folder_ / "labels/c0.npy", make_volume<int16_t>(kExtent, [](int64_t v) { return v == 5 ? 300 : 0; }));
  EXPECT_THAT(error_of([&] { open(data); }), testing::AllOf(HasSubstr("the value 300"), HasSubstr("regression")));
  data.target = "regression";
  const auto store = open(data);
  EXPECT_EQ(value_at(store->fetch(0, Role::kLabel, 0, whole(kExtent)).view, 0, 0, 5), 300);
}

TEST_F(StoreTest, TooLittleMemoryForOneVolumeSaysHowMuchItTakes) {
  DataOptions data = make_cases(1, ".nii.gz");
  data.cache_gb = 1000.0 / (1 << 30);
  data.on_bad_case = "skip";
  EXPECT_THAT(error_of([&] { open(data); }),
              testing::AllOf(HasSubstr("c0"), HasSubstr("137 KiB"), HasSubstr("data.cache_gb")));
}

TEST_F(StoreTest, ResidentBytesStayWithinTheBudgetUnderThreads) {
  DataOptions data = make_cases(8, ".nii.gz");
  data.cache_gb = 8.0 * static_cast<double>(kExtent.voxels()) / static_cast<double>(1 << 30);
  const auto store = open(data);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int64_t n = 0; n < 30; ++n) {
        const Box3 box{{n % 8, t, 2}, {n % 8 + 20, t + 30, 30}};
        const Block image = store->fetch((n * 3 + t) % 8, Role::kImage, 0, box);
        const Block label = store->fetch((n * 3 + t) % 8, Role::kLabel, 0, box);
        expect_right(label, 0, Role::kLabel, box);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(store->counts().resident_peak, static_cast<int64_t>(data.cache_gb * (1 << 30)));
}

Tree params(const std::vector<std::pair<std::string, std::string>>& values) {
  Tree tree;
  tree.kind = Tree::Kind::kMap;
  for (const auto& [key, value] : values) tree.members.emplace_back(key, scalar_tree(value));
  return tree;
}

TEST_F(StoreTest, DatasetZScoreCentresTheTrainingCases) {
  DataOptions data = make_cases(3);
  data.preprocess = {{"zscore", params({{"scope", "dataset"}})}};
  const auto store = open(data);
  double sum = 0, squares = 0;
  for (int64_t c = 0; c < 3; ++c) {
    const Block block = store->fetch(c, Role::kImage, 0, whole(kExtent));
    EXPECT_EQ(block.view.dtype, DType::kUInt8) << "no float copy";
    for (int64_t v = 0; v < kExtent.voxels(); ++v) {
      const double value = value_at(block.view, 0, 0, v);
      sum += value, squares += value * value;
    }
  }
  const auto count = static_cast<double>(3 * kExtent.voxels());
  EXPECT_NEAR(sum / count, 0, 1e-9);
  EXPECT_NEAR(squares / count, 1, 1e-9);
}

TEST_F(StoreTest, PreprocessedVolumesAreKeptAndShapesFollow) {
  DataOptions data = make_cases(2);
  data.preprocess = {{"resample", params({{"factor", "0.5"}})}};
  const auto first = open(data);
  EXPECT_EQ(first->facts(0).extent, (Extent3{20, 35, 25}));
  const auto second = open(data);
  const Block label = second->fetch(1, Role::kLabel, 0, {{0, 0, 0}, {20, 35, 25}});
  EXPECT_EQ(second->counts().volumes_decoded, 0) << "read from the cache folder";
  for (int64_t z = 0; z < 20; ++z)
    for (int64_t x = 0; x < 25; ++x)
      EXPECT_EQ(value_at(label.view, z, 3, x), label_value(((2 * z + 1) * kExtent.y + 7) * kExtent.x + 2 * x + 1));
}

TEST_F(StoreTest, WhatFitsIntoMemoryNeedsNoCacheFolder) {
  DataOptions data = make_cases(2);
  data.preprocess = {{"clip", params({{"min", "20"}, {"max", "200"}})}};
  write_file(folder_ / "file", "x");
  data.cache_dir = folder_ / "file/cache";  // no folder can be made there
  const auto store = open(data);
  const Block image = store->fetch(1, Role::kImage, 0, whole(kExtent));
  for (int64_t x = 0; x < kExtent.x; ++x)
    EXPECT_EQ(value_at(image.view, 0, 0, x), std::clamp(image_value(1, x), 20.0, 200.0));
}

TEST_F(StoreTest, StagedFilesAreCopiedOnceAndReadFromThere) {
  DataOptions data = make_cases(2);
  data.stage_dir = folder_ / "stage";
  const auto store = open(data);
  expect_all_right(*store, 2);
  EXPECT_THAT(store->dataset().cases[0].images[0], HasSubstr("/stage/"));
  const auto written = fs::last_write_time(store->dataset().cases[0].images[0]);
  int64_t copied = 0;
  const StoreProgress progress{
      [&](const std::string& what, int64_t, int64_t, int64_t) { copied += what == "staging files"; }};
  write_volume(folder_ / "labels/c1.npy", make_volume<uint8_t>(kExtent, label_value));  // a new time
  Store again(make_dataset(data, 0, 0), data, pool_, progress);
  EXPECT_EQ(copied, 1) << "only the file that changed";
  EXPECT_EQ(fs::last_write_time(again.dataset().cases[0].images[0]), written);
}

TEST_F(StoreTest, OrientationsMustAgreeUnlessTurnedToRas) {
  DataOptions data = make_cases(2, ".nii.gz");
  Volume volume = make_volume<uint8_t>(kExtent, [](int64_t v) { return image_value(1, v); });
  volume.info.affine = Affine{{{-1, 0, 0, 49}, {0, 1, 0, 0}, {0, 0, 1, 0}}};
  write_volume(folder_ / "images/c1.nii.gz", volume);
  write_volume(folder_ / "images/c0.nii.gz", [&] {
    Volume other = make_volume<uint8_t>(kExtent, [](int64_t v) { return image_value(0, v); });
    other.info.affine = Affine{{{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}}};
    return other;
  }());
  data.label = "";
  EXPECT_THAT(error_of([&] { open(data); }), testing::AllOf(HasSubstr("case c0 is RAS"), HasSubstr("case c1 is LAS")));
  data.orientation = "RAS";
  const auto store = open(data);
  const Block turned = store->fetch(1, Role::kImage, 0, whole(kExtent));
  for (int64_t x = 0; x < kExtent.x; ++x)
    EXPECT_EQ(value_at(turned.view, 2, 3, x), image_value(1, (2 * kExtent.y + 3) * kExtent.x + kExtent.x - 1 - x));
}

TEST_F(StoreTest, ABoxOutsideTheVolumeStillHoldsItsNearestVoxel) {
  DataOptions data = make_cases(2);
  data.placement = "disk";
  data.cache_gb = 3e6 / (1 << 30);
  const auto store = open(data);
  const Block block = store->fetch(0, Role::kImage, 0, {{-30, 200, -5}, {-10, 220, 3}});
  EXPECT_EQ(value_at(block.view, 0, kExtent.y - 1, 0), image_value(0, (kExtent.y - 1) * kExtent.x));
}

}  // namespace
}  // namespace vox
