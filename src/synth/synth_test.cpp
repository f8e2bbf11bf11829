#include "synth/synth.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>

#include "base/drawn_seed.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "io/format.h"
#include "io/openkbp.h"

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
  const uint64_t seed = drawn_seed();
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

TEST(SyntheticMitochondria, NoGlobalThresholdFindsThemAndTheyAreSome) {
  const uint64_t seed = drawn_seed();
  SCOPED_TRACE(seed);
  ThreadPool pool(2);
  double inside = 0, all = 0;
  for (uint64_t i = 0; i < 3; ++i) {
    const SynthPair pair = make_mitochondria({32, 96, 96}, seed + i, i == 2 ? 3.0 : 1.0, pool);
    EXPECT_LT(best_threshold_dice(pair), 0.7);
    const auto* label = pair.label.as<uint8_t>();
    inside += static_cast<double>(std::count(label, label + pair.label.info.voxels(), 1));
    all += static_cast<double>(pair.label.info.voxels());
  }
  EXPECT_GT(inside / all, 0.02);
  EXPECT_LT(inside / all, 0.4);
}

// A patient of a finished data set, as the masks and doses of the challenge are built.
void check_patient(const OpenKbpPatient& patient) {
  const auto* bits = patient.bits.as<uint16_t>();
  const auto* dose = patient.dose.as<float>();
  double in_target = 0, in_body = 0;
  int64_t target = 0, body = 0;
  float highest = 0;
  for (int64_t i = 0; i < 128 * 128 * 128; ++i) {
    const bool allowed = bits[i] >> kOpenKbpDoseMaskBit & 1;
    ASSERT_TRUE(allowed || dose[i] == 0);
    highest = std::max(highest, dose[i]);
    if (bits[i] >> 9 & 1) in_target += static_cast<double>(dose[i]), ++target;
    if (allowed) in_body += static_cast<double>(dose[i]), ++body;
    ASSERT_FALSE((bits[i] >> 9 & 1) && (bits[i] >> 8 & 1)) << "targets overlap";
    const bool neighbours = i > 0 && allowed && (bits[i - 1] >> kOpenKbpDoseMaskBit & 1);
    ASSERT_TRUE(!neighbours || std::abs(dose[i] - dose[i - 1]) < 16) << "the dose is not smooth";
  }
  ASSERT_GT(target, 100);
  EXPECT_NEAR(in_target / static_cast<double>(target), 70, 1);
  EXPECT_LE(highest, 70);
  EXPECT_LT(in_body / static_cast<double>(body), 50);
}

TEST(SyntheticDose, PatientsHaveTargetsAndSomeLackOrgans) {
  const auto folder = std::filesystem::temp_directory_path() / ("vox_synth_kbp" + std::to_string(::getpid()));
  ThreadPool pool(2);
  make_synthetic("dose", {.folder = folder.string(), .count = 3, .seed = 5, .suffix = ""}, pool);
  OpenKbpPatient patient = allocate_openkbp();
  int missing = 0;
  for (int i = 1; i <= 3; ++i) {
    const auto one = folder / ("pt_" + std::to_string(i));
    read_openkbp(one.string(), &patient);
    check_patient(patient);
    for (const char* name : kOpenKbpStructures) missing += !std::filesystem::exists(one / (std::string(name) + ".csv"));
    EXPECT_TRUE(std::filesystem::exists(one / "PTV70.csv"));
  }
  EXPECT_GT(missing, 0);
  EXPECT_LT(missing, 15);
  std::filesystem::remove_all(folder);
}

TEST(Synthetic, EveryKindIsMadeOnceAndRefusesAnotherRequest) {
  ThreadPool pool(2);
  for (const SynthEntry& entry : all_synths()) {
    const auto folder =
        std::filesystem::temp_directory_path() / ("vox_synth_" + entry.name + std::to_string(::getpid()));
    SynthRequest request{.folder = folder.string(), .count = 2, .size = {12, 16, 16}, .seed = 3, .suffix = ".npy"};
    make_synthetic(entry.name, request, pool);
    const auto made = std::filesystem::last_write_time(folder / ".synth.json");
    make_synthetic(entry.name, request, pool);
    EXPECT_EQ(made, std::filesystem::last_write_time(folder / ".synth.json")) << entry.name;
    request.seed = 4;
    EXPECT_THROW(make_synthetic(entry.name, request, pool), Error) << entry.name;
    std::filesystem::remove_all(folder);
  }
  EXPECT_THROW(make_synthetic("scrol", {.folder = "unused"}, pool), Error);
}

}  // namespace
}  // namespace vox
