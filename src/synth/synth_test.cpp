#include "synth/synth.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <random>

#include "base/error.h"
#include "base/thread_pool.h"
#include "io/format.h"

namespace vox {
namespace {

// Dice of `image >= t` against label 1, label 2 left out, for the best t.
double best_threshold_dice(const ScrollPair& pair) {
  std::array<std::array<int64_t, 256>, 3> histogram{};
  for (int64_t i = 0; i < pair.image.info.voxels(); ++i)
    ++histogram[pair.label.as<uint8_t>()[i]][pair.image.as<uint8_t>()[i]];
  int64_t foreground = 0, hits = 0, false_alarms = 0;
  for (const int64_t count : histogram[1]) foreground += count;
  double best = 0;
  for (size_t value = 256; value-- > 0;) {
    hits += histogram[1][value];
    false_alarms += histogram[0][value];
    best = std::max(best, 2.0 * static_cast<double>(hits) / static_cast<double>(hits + false_alarms + foreground));
  }
  return best;
}

TEST(SyntheticScroll, NoGlobalThresholdFindsTheSheet) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  ThreadPool pool(2);
  double unlabeled = 0;
  for (uint64_t i = 0; i < 4; ++i) {
    const ScrollPair pair = make_scroll({64, 96, 96}, seed + i, pool);
    EXPECT_LT(best_threshold_dice(pair), 0.5);
    const auto* label = pair.label.as<uint8_t>();
    const auto count = [&](uint8_t value) {
      return static_cast<double>(std::count(label, label + pair.label.info.voxels(), value));
    };
    EXPECT_GT(count(1), 0.05 * count(0));
    unlabeled += count(2);
  }
  EXPECT_GT(unlabeled, 0);
}

TEST(SyntheticScroll, IsTheSameWithAnyNumberOfThreads) {
  ThreadPool one(1), three(3);
  const ScrollPair a = make_scroll({20, 33, 47}, 9, one), b = make_scroll({20, 33, 47}, 9, three);
  EXPECT_EQ(0, std::memcmp(a.image.data.data(), b.image.data.data(), static_cast<size_t>(a.image.info.bytes())));
  EXPECT_EQ(0, std::memcmp(a.label.data.data(), b.label.data.data(), static_cast<size_t>(a.label.info.bytes())));
}

TEST(Synthetic, EveryKindIsMadeOnceAndRefusesAnotherRequest) {
  ThreadPool pool(2);
  for (const SynthEntry& entry : all_synths()) {
    const auto folder =
        std::filesystem::temp_directory_path() / ("vox_synth_" + entry.name + std::to_string(::getpid()));
    SynthRequest request{.folder = folder.string(), .count = 2, .size = {12, 16, 16}, .seed = 3, .suffix = ".npy"};
    make_synthetic(entry.name, request, pool);
    const auto made = std::filesystem::last_write_time(folder / "synth.json");
    make_synthetic(entry.name, request, pool);
    EXPECT_EQ(made, std::filesystem::last_write_time(folder / "synth.json")) << entry.name;
    request.seed = 4;
    EXPECT_THROW(make_synthetic(entry.name, request, pool), Error) << entry.name;
    std::filesystem::remove_all(folder);
  }
  EXPECT_THROW(make_synthetic("scrol", {.folder = "unused"}, pool), Error);
}

}  // namespace
}  // namespace vox
