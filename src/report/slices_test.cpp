#include "report/slices.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "report/run_folder.h"
#include "report/test_folder.h"

namespace vox {
namespace {

SliceStrip strip_of(int64_t epoch, const std::string& case_id) {
  SliceStrip strip{
      .epoch = epoch, .case_id = case_id, .height = 2, .width = 3, .input = {}, .label = {}, .prediction = {}};
  strip.input = {0, 50, 100, 150, 200, 250};
  strip.label = {0, 1, 0, 2, 255, 0};
  return strip;
}

TEST(Slices, AreFoundByEpochThenCase) {
  const TestFolder folder;
  const RunFolder run = RunFolder::create(folder.path(), "demo");
  EXPECT_TRUE(find_slices(run).empty());
  save_slice_strip(run, strip_of(10, "s-2"));
  save_slice_strip(run, strip_of(2, "a/b"));
  save_slice_strip(run, strip_of(10, "s-10"));
  const std::vector<SliceFiles> found = find_slices(run);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].case_id, "a_b");
  EXPECT_EQ(found[0].epoch, 2);
  EXPECT_EQ(found[1].case_id, "s-2");
  EXPECT_EQ(found[2].case_id, "s-10");
  EXPECT_EQ(found[1].label.filename(), "image-0010-s-2-label.png");
  EXPECT_TRUE(found[1].prediction.empty());
  drop_slices_after(run, 5);
  EXPECT_EQ(find_slices(run).size(), 1u);
}

TEST(Slices, SideBySideKeepsTheInputWhereThereIsNoLabel) {
  const Image image = side_by_side(strip_of(1, "s"));
  EXPECT_EQ(image.width, 2 * 3 + 4);
  EXPECT_EQ(image.channels, 3);
  const auto pixel = [&](int64_t y, int64_t x) { return image.pixels[static_cast<size_t>((y * image.width + x) * 3)]; };
  EXPECT_EQ(pixel(0, 2), 100);
  EXPECT_EQ(pixel(0, 7 + 2), 100);
  EXPECT_NE(pixel(0, 7 + 1), 50);
  EXPECT_EQ(pixel(0, 4), 255) << "the gap";
}

TEST(Png, BeginsAsEveryPngDoes) {
  const std::string png = encode_png({.width = 3, .height = 2, .channels = 1, .pixels = {0, 1, 2, 3, 4, 5}});
  EXPECT_EQ(png.substr(0, 8), std::string("\x89PNG\r\n\x1a\n", 8));
  EXPECT_EQ(png.substr(12, 4), "IHDR");
  EXPECT_EQ(png.substr(png.size() - 8, 4), "IEND");
}

}  // namespace
}  // namespace vox
