// The truth about these files is TensorBoard itself: tests/test_tensorboard.py runs this test with VOX_TEST_OUTPUT and
// reads the folder back. Here: what can be said without it.
#include "report/tensorboard.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>

#include "base/file.h"
#include "report/png.h"
#include "report/slices.h"
#include "report/test_folder.h"

namespace vox {
namespace {

SliceStrip small_strip() {
  SliceStrip strip{.epoch = 3, .case_id = "s-1", .height = 4, .width = 6, .input = {}, .label = {}, .prediction = {}};
  for (int i = 0; i < 24; ++i) strip.input.push_back(static_cast<uint8_t>(10 * i));
  strip.label.assign(24, 0);
  strip.label[5] = 1;
  strip.prediction.assign(24, 0);
  strip.prediction[6] = 1;
  return strip;
}

void write_example(const fs::path& folder) {
  EventWriter writer(folder);
  for (int64_t step = 1; step <= 20; ++step) writer.scalar("train/loss", 1.0 / static_cast<double>(step), step);
  writer.scalar("train/large_step", 2.5, int64_t{1} << 40);
  writer.image("slices/s-1", side_by_side(small_strip()), 10);
  writer.image("slices/gray", {.width = 6, .height = 4, .channels = 1, .pixels = small_strip().input}, 10);
  std::vector<float> values;
  for (int i = -50; i <= 50; ++i) values.push_back(0.25f * static_cast<float>(i));
  values.push_back(std::numeric_limits<float>::quiet_NaN());
  writer.histogram("gradients/conv", values, 10);
  for (int64_t step = 5; step <= 15; step += 5) {
    writer.scalar("val/dice", 0.5, step);
    writer.image("val/s-1", side_by_side(small_strip()), step);
    writer.scalar("train/epoch", static_cast<double>(step) / 5, step);
  }
  writer.text("config", "| key | value |\n|---|---|\n| a | b |", 0);
  writer.flush();
}

TEST(TensorBoard, FilesForTheReaderOfTensorBoard) {
  const char* output = std::getenv("VOX_TEST_OUTPUT");
  if (!output) GTEST_SKIP() << "VOX_TEST_OUTPUT is not set";
  write_example(fs::path(output) / "whole");
  write_example(fs::path(output) / "cut");
  cut_events_after(fs::path(output) / "cut", 7);
  write_example(fs::path(output) / "open");
  cut_events_after(fs::path(output) / "open", 10, /*open=*/true);
}

TEST(TensorBoard, CuttingBackTwiceIsCuttingBackOnce) {
  const TestFolder folder;
  write_example(folder.path());
  const fs::path file = fs::directory_iterator(folder.path())->path();
  const auto whole = fs::file_size(file);
  cut_events_after(folder.path(), int64_t{1} << 41);
  EXPECT_EQ(fs::file_size(file), whole);
  cut_events_after(folder.path(), 7);
  const std::string once = read_file(file);
  EXPECT_LT(once.size(), whole);
  cut_events_after(folder.path(), 7);
  EXPECT_EQ(read_file(file), once);
}

TEST(TensorBoard, HalfARecordOfAKilledProcessGoes) {
  const TestFolder folder;
  write_example(folder.path());
  const fs::path file = fs::directory_iterator(folder.path())->path();
  cut_events_after(folder.path(), 7);
  const std::string complete = read_file(file);
  write_file(file, complete + complete.substr(0, 15));
  cut_events_after(folder.path(), 7);
  EXPECT_EQ(read_file(file), complete);
}

}  // namespace
}  // namespace vox
