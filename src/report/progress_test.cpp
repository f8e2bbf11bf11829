#include "report/progress.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "base/file.h"
#include "report/test_folder.h"

namespace vox {
namespace {

StepProgress some_step(int64_t step) {
  return {.epoch = 2,
          .epochs = 5,
          .step = step,
          .total_steps = 50,
          .step_in_epoch = step - 10,
          .steps_in_epoch = 10,
          .loss = 0.5,
          .samples_per_s = 12.34,
          .data_wait = 0.013,
          .memory_gb = 3.21,
          .eta_s = 90};
}

std::string printed(ProgressOptions::Style style, double line_seconds, const std::function<void(Progress&)>& use) {
  const TestFolder folder;
  const auto path = folder.path() / "out";
  std::FILE* out = std::fopen(path.c_str(), "w");
  {
    Progress progress({.out = out, .style = style, .line_seconds = line_seconds});
    use(progress);
  }
  std::fclose(out);
  return read_file(path);
}

TEST(Progress, AStepShowsEverythingThatMatters) {
  EXPECT_EQ(
      step_line(some_step(12), 0.75),
      "epoch 2/5  step 12/50  loss 0.5000 (mean 0.7500)  12.3 samples/s  data wait 1.3 %  3.2 GB  ETA 1 min 30 s");
}

TEST(Progress, AnEpochShowsEveryTermAndScore) {
  const EpochSummary summary{.epoch = 2,
                             .epochs = 5,
                             .loss = 0.5,
                             .terms = {{"bce", 0.2}, {"dice", 0.3}},
                             .scores = {{"dice", 0.81}},
                             .seconds = 61,
                             .samples_per_s = 8.5,
                             .data_wait = 0.25,
                             .gpu_util = 0.93,
                             .gpu_mem_gb = 11.04,
                             .host_rss_gb = std::nullopt};
  EXPECT_EQ(epoch_line(summary),
            "epoch 2/5  loss 0.5000  bce 0.2000  dice 0.3000  val dice 0.8100  1 min 1 s  8.50 samples/s  "
            "data wait 25 %  GPU 93 %  GPU memory 11.0 GB");
}

TEST(Progress, TheMeanForgetsTheFirstLossesWithinTwentyRows) {
  const std::string text = printed(ProgressOptions::Style::kLines, 0, [](Progress& progress) {
    for (int64_t row = 0; row <= 20; ++row) {
      StepProgress now = some_step(10 * row);
      now.loss = row == 0 ? 4.0 : 0.5;
      progress.step(now);
    }
  });
  const double mean = std::stod(text.substr(text.rfind("(mean ") + 6));
  EXPECT_GT(mean, 0.5) << text;
  EXPECT_LT(mean, 0.51) << text;
}

TEST(Progress, ElsewhereThanOnATerminalLinesAreRareAndPlain) {
  const std::string text = printed(ProgressOptions::Style::kAuto, 1000, [](Progress& progress) {
    for (int64_t step = 11; step <= 20; ++step) progress.step(some_step(step));
    progress.epoch({.epoch = 2, .epochs = 5, .loss = 0.5, .seconds = 1});
  });
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << text;
}

TEST(Progress, TheBarLeavesNothingBehindAndRespectsNoColor) {
  const auto use = [](Progress& progress) { progress.step(some_step(15)); };
  setenv("NO_COLOR", "1", 1);
  const std::string plain = printed(ProgressOptions::Style::kBar, 10, use);
  unsetenv("NO_COLOR");
  const std::string coloured = printed(ProgressOptions::Style::kBar, 10, use);
  EXPECT_TRUE(plain.ends_with("\r\x1b[2K"));
  EXPECT_EQ(plain.find("m"), plain.find("mean")) << "no colour codes before the text";
  EXPECT_NE(coloured.find("\x1b[2m"), std::string::npos);
}

TEST(Progress, ATerminalThatKnowsNoEscapeCodesIsNoScreen) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_GE(terminal, 0);
  const char* before = std::getenv("TERM");
  const std::string kept = before ? before : "";
  setenv("TERM", "xterm", 1);
  EXPECT_TRUE(is_screen(terminal));
  setenv("TERM", "dumb", 1);
  EXPECT_FALSE(is_screen(terminal));
  before ? setenv("TERM", kept.c_str(), 1) : unsetenv("TERM");
  close(terminal);
}

TEST(Progress, SlowStorageIsNamedOnce) {
  const std::string text = printed(ProgressOptions::Style::kLines, 0, [](Progress& progress) {
    for (int second = 1; second <= 9; ++second)
      progress.loading({.bytes_done = second * 20'000'000, .bytes_total = 400'000'000, .seconds = 1.0 * second});
  });
  EXPECT_EQ(text.find("slow storage: 20 MB/s"), text.rfind("slow storage"));
  EXPECT_NE(text.find("slow storage: 20 MB/s"), std::string::npos) << text;
  EXPECT_NE(text.find("ETA 11 s"), std::string::npos) << text;
}

}  // namespace
}  // namespace vox
