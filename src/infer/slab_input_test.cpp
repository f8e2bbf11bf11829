#include "infer/slab_input.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <iostream>
#include <random>

#include "base/drawn_seed.h"
#include "base/error.h"
#include "base/random.h"
#include "base/thread_pool.h"
#include "io/format.h"

namespace vox {
namespace {

constexpr Extent3 kExtent{23, 9, 13};

PreprocessStep step(const std::string& name, const std::vector<std::pair<std::string, std::string>>& values) {
  PreprocessStep result{name, {}};
  result.params.kind = Tree::Kind::kMap;
  for (const auto& [key, value] : values) result.params.members.emplace_back(key, scalar_tree(value));
  return result;
}

PreprocessStep zscore_of(const std::string& mean, const std::string& deviation) {
  PreprocessStep result = step("zscore", {{"scope", "dataset"}});
  result.params.members.emplace_back("mean", list_tree({scalar_tree(mean)}));
  result.params.members.emplace_back("std", list_tree({scalar_tree(deviation)}));
  return result;
}

class SlabInput : public testing::Test {
 protected:
  SlabInput() : folder_(std::filesystem::path(testing::TempDir()) / concat("slab-input-", std::random_device{}())) {
    std::cout << "seed " << seed_ << '\n';
    std::filesystem::create_directories(folder_);
    data_.cache_dir = (folder_ / "cache").string();
    data_.cache_gb = 1;
  }
  ~SlabInput() override { std::filesystem::remove_all(folder_); }

  std::string put(DType dtype) {
    VolumeInfo info;
    info.dtype = dtype;
    info.extent = kExtent;
    info.spacing = Spacing3{};
    Volume volume = allocate_volume(info);
    with_type(dtype, [&](auto tag) {
      for (int64_t i = 0; i < info.voxels(); ++i)
        volume.data.as<decltype(tag)>()[i] = static_cast<decltype(tag)>(random_.uniform(0, 120));
    });
    const std::string name = (folder_ / (name_of(dtype) + std::string(".npy"))).string();
    write_volume(name, volume);
    return name;
  }

  // Every window by ascending z, from slices and from the whole volume.
  void expect_equal(const std::string& name, double tolerance) {
    const Case item{.id = "a", .group = "a", .images = {name}, .label = "", .mask = "", .split = ""};
    const Preprocess preprocess(data_);
    const CaseUnits units = open_case(item, data_, preprocess);
    ASSERT_TRUE(can_read_in_slabs(units, preprocess));
    const int64_t depth = 4 + random_.below(5);
    const CaseInput slabs = input_in_slabs(units, item, preprocess, depth, pool_);
    Dataset alone;
    alone.cases.push_back(item);
    alone.test.push_back(0);
    const CaseInput whole_volume = input_of(std::make_shared<Store>(alone, data_, pool_), 0);
    for (int64_t z = 0; z + depth <= kExtent.z; z += 1 + random_.below(depth)) {
      const Box3 box{{z, 0, 0}, {z + depth, kExtent.y, kExtent.x}};
      const std::vector<float> got = values(slabs.image(0, box).view, box);
      const std::vector<float> expected = values(whole_volume.image(0, box).view, box);
      for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], tolerance) << box << " voxel " << i;
    }
  }

  static std::vector<float> values(const VolumeView& view, const Box3& box) {
    std::vector<float> out(static_cast<size_t>(box.voxels()));
    GatherMap map;
    map.origin = box.begin;
    gather_cpu({.data = out.data(), .dtype = DType::kFloat32, .extent = box.extent()}, view, map,
               {.interpolation = Interpolation::kNearest});
    return out;
  }

  const uint64_t seed_ = drawn_seed();
  Random random_{seed_, 0, 0};
  const std::filesystem::path folder_;
  DataOptions data_;
  ThreadPool pool_{2};
};

TEST_F(SlabInput, StepsOfSingleVoxelsGiveWhatTheyGiveOnTheWhole) {
  const PreprocessStep clip = step("clip", {{"min", "20"}, {"max", "80"}});
  const PreprocessStep odd_clip = step("clip", {{"min", "20.5"}, {"max", "80"}});  // of whole numbers: becomes real
  const PreprocessStep window = step("window", {{"center", "50"}, {"width", "40"}});
  const PreprocessStep normalize = step("normalize", {{"mean", "47"}, {"std", "13"}});
  const PreprocessStep known = zscore_of("51", "17");
  const std::vector<std::vector<PreprocessStep>> chains{
      {clip}, {odd_clip}, {window}, {normalize}, {known}, {clip, normalize}, {odd_clip, window, known}};
  for (const DType dtype : {DType::kUInt8, DType::kInt16, DType::kFloat32})
    for (size_t i = 0; i < chains.size(); ++i) {
      SCOPED_TRACE(concat(name_of(dtype), ", chain ", i));
      data_.preprocess = chains[i];
      expect_equal(put(dtype), 0);
    }
}

TEST_F(SlabInput, StatisticsAreThoseOfTheStepsBefore) {
  const PreprocessStep clip = step("clip", {{"min", "20"}, {"max", "80"}}), zscore = step("zscore", {});
  const PreprocessStep minmax = step("minmax", {}), positive = step("clip", {{"min", "0"}, {"max", "9"}});
  for (const DType dtype : {DType::kUInt8, DType::kFloat32})
    for (const auto& chain : std::vector<std::vector<PreprocessStep>>{
             {zscore}, {clip, zscore}, {clip, minmax}, {zscore, positive, minmax}, {zscore, positive, zscore}}) {
      SCOPED_TRACE(concat(name_of(dtype), ", ", chain.size(), " steps"));
      data_.preprocess = chain;
      expect_equal(put(dtype), 1e-5);  // sums in other parts
    }
}

TEST_F(SlabInput, TheMaskIsThatOfTheFile) {
  const std::string image = put(DType::kUInt8), mask = (folder_ / "mask.nii.gz").string();
  const Volume truth = read_volume(image);
  write_volume(mask, truth);
  const Case item{.id = "a", .group = "a", .images = {image}, .label = "", .mask = mask, .split = ""};
  const Preprocess preprocess(data_);
  const int64_t depth = 4 + random_.below(5);
  const CaseInput slabs = input_in_slabs(open_case(item, data_, preprocess), item, preprocess, depth, pool_);
  for (int pass = 0; pass < 2; ++pass)
    for (int64_t z = 0; z < kExtent.z; z += 1 + random_.below(depth))
      for (int64_t x = 0; x < 2; ++x) {
        const Box3 box{{z, 2, 5 * x}, {std::min(z + depth, kExtent.z), 7, 5 * x + 8}};
        EXPECT_EQ(values(slabs.mask(box).view, box), values(view_of(truth), box)) << box;
      }
}

TEST_F(SlabInput, WhatLooksAtNeighboursNeedsTheWhole) {
  const std::string name = put(DType::kUInt8);
  const Case item{.id = "a", .group = "a", .images = {name}, .label = "", .mask = "", .split = ""};
  for (const PreprocessStep& one : {step("median", {}), step("zscore", {{"foreground", "true"}}),
                                    step("zscore", {{"scope", "dataset"}}), step("percentile", {})}) {
    data_.preprocess = {one};
    const Preprocess preprocess(data_);
    EXPECT_FALSE(can_read_in_slabs(open_case(item, data_, preprocess), preprocess)) << one.name;
  }
}

}  // namespace
}  // namespace vox
