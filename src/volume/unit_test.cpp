#include "volume/unit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>

#include "base/thread_pool.h"
#include "volume/test_volumes.h"

namespace vox {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr Extent3 kExtent{7, 9, 11};
const Affine kRas{{{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}}};
const Affine kLas{{{-1, 0, 0, 10}, {0, 1, 0, 0}, {0, 0, 1, 0}}};
const Affine kAsl{{{0, 0, -1, 6}, {1, 0, 0, 0}, {0, 1, 0, 0}}};  // x to the front, y upwards, z to the left

class UnitTest : public testing::Test {
 protected:
  std::string put(const std::string& name, const std::optional<Affine>& affine = {}) {
    Volume volume = make_volume<uint8_t>(kExtent, [](int64_t i) { return i * 7 % 5; });
    volume.info.affine = affine;
    write_volume(folder_ / name, volume);
    return folder_ / name;
  }
  static Case case_of(const std::string& image, const std::string& label) {
    return {.id = "a", .group = "a", .images = {image}, .label = label, .mask = "", .split = ""};
  }
  CaseUnits opened(const std::string& image, const std::string& label = "") const {
    return open_case(case_of(image, label), data_, Preprocess(data_));
  }
  uint64_t key_of(const std::string& name) const { return opened(name).images.front().key; }

  TemporaryFolder folder_;
  DataOptions data_;
};

void change_in_place(const fs::path& file) {
  const fs::path folder = file.parent_path();
  const auto before = fs::last_write_time(folder);
  std::string bytes = read_file(file);
  bytes.back() ^= 1;
  std::ofstream(file, std::ios::binary | std::ios::in) << bytes;
  fs::last_write_time(file, fs::last_write_time(file) + std::chrono::seconds(1));
  ASSERT_EQ(fs::last_write_time(folder), before) << "the folder does not tell";
}

TEST_F(UnitTest, AFileChangedInPlaceInAFolderIsAnotherVolume) {
  const std::string zarr = put("a.zarr"), stack = put("a.pngs");
  const uint64_t zarr_before = key_of(zarr), stack_before = key_of(stack);
  EXPECT_EQ(key_of(zarr), zarr_before);
  change_in_place(fs::path(zarr) / "0/0/0");
  EXPECT_NE(key_of(zarr), zarr_before);
  change_in_place(fs::path(stack) / "3.png");
  EXPECT_NE(key_of(stack), stack_before);
}

// nibabel's pair of a header and an image is this file, cut in two.
void make_pair(const fs::path& nifti) {
  constexpr size_t kOffset = 108, kMagic = 344, kVoxels = 352;
  const std::string bytes = read_file(nifti);
  write_file(fs::path(nifti).replace_extension(".img"), bytes.substr(kVoxels));
  std::string header = bytes.substr(0, kVoxels);
  header.replace(kOffset, 4, 4, '\0').replace(kMagic, 3, "ni1");
  write_file(fs::path(nifti).replace_extension(".hdr"), header);
}

TEST_F(UnitTest, DataBesideTheirHeaderChangedInPlaceAreAnotherVolume) {
  make_pair(put("a.nii"));
  put("b.nhdr");
  for (const auto& [named, changed] : {std::pair("a.hdr", "a.img"), {"a.img", "a.hdr"}, {"b.nhdr", "b.raw.gz"}}) {
    const uint64_t before = key_of(folder_ / named);
    EXPECT_EQ(key_of(folder_ / named), before);
    change_in_place(folder_ / changed);
    EXPECT_NE(key_of(folder_ / named), before) << changed;
  }
}

TEST_F(UnitTest, AnotherArrayOfAZarrGroupChangesNothing) {
  const std::string raw = put("g.zarr:raw"), deep = put("g.zarr:more/raw");
  const uint64_t raw_before = key_of(raw), deep_before = key_of(deep);
  put("g.zarr:label");
  EXPECT_EQ(key_of(raw), raw_before);
  EXPECT_EQ(key_of(deep), deep_before);
  change_in_place(fs::path(folder_ / "g.zarr") / "more/raw/0/0/0");
  EXPECT_EQ(key_of(raw), raw_before);
  EXPECT_NE(key_of(deep), deep_before);
}

TEST_F(UnitTest, FilesThatPointDifferentWaysAreRefusedUnlessTurned) {
  const std::string image = put("image.nii.gz", kLas), label = put("label.nii.gz", kRas);
  EXPECT_THAT(error_of([&] { opened(image, label); }),
              AllOf(HasSubstr("label.nii.gz is RAS"), HasSubstr("image.nii.gz is LAS"), HasSubstr("orientation: RAS")));
  EXPECT_EQ(error_of([&] { opened(image, put("label.npy")); }), "");
  data_.orientation = "RAS";
  EXPECT_EQ(error_of([&] { opened(image, label); }), "");
}

TEST_F(UnitTest, AnImageThatSaysNothingIsNotTurnedByItsLabel) {
  const std::string image = put("image.npy"), label = put("label.nii.gz", kLas);
  EXPECT_EQ(error_of([&] { opened(image, label); }), "");
  data_.orientation = "RAS";
  EXPECT_THAT(error_of([&] { opened(image, label); }),
              AllOf(HasSubstr("label.nii.gz is LAS"), HasSubstr("image.npy"), HasSubstr("orientation: keep")));
  EXPECT_EQ(error_of([&] { opened(image, put("straight.nii.gz", kRas)); }), "");
}

TEST_F(UnitTest, ALabelThatSaysNothingIsTurnedAsItsImage) {
  data_.orientation = "RAS";
  data_.cache_dir = folder_ / "cache";
  ThreadPool pool(1);
  for (const Affine& affine : {kRas, kLas, kAsl}) {
    const std::string image = put("image.nii.gz", affine), label = put("label.npy");
    Dataset alone;
    alone.cases.push_back(case_of(image, label));
    Store store(alone, data_, pool);
    const Extent3 extent = store.facts(0).extent;
    const Block turned = store.fetch(0, Role::kImage, 0, whole(extent));
    const Block followed = store.fetch(0, Role::kLabel, 0, whole(extent));
    for (int64_t z = 0; z < extent.z; ++z)
      for (int64_t y = 0; y < extent.y; ++y)
        for (int64_t x = 0; x < extent.x; ++x)
          ASSERT_EQ(value_at(followed.view, z, y, x), value_at(turned.view, z, y, x)) << axis_codes(affine);
  }
}

TEST_F(UnitTest, AFolderMayHaveAColonInItsName) {
  const std::string zarr = put("t10:30/g.zarr:raw"), plain = put("t10:30/v.npy");
  EXPECT_EQ(opened(zarr).images.front().raw.extent, kExtent);
  EXPECT_EQ(opened(plain).images.front().raw.extent, kExtent);
}

}  // namespace
}  // namespace vox
