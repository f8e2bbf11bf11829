// What tune tries and keeps on machines that are invented.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "measure/invented_machine.h"

namespace vox {

std::string profile_document(const Options& options, const Measured& found) {
  const auto samples = static_cast<double>(options.data.batch_size * options.training.accumulate);
  nlohmann::json suggestions = nlohmann::json::array();
  for (const Suggestion& one : found.suggestions)
    suggestions.push_back({{"changes", one.changes},
                           {"predicted_step_ms", one.predicted_step_ms},
                           {"why", one.why},
                           {"same_result", one.same_result}});
  nlohmann::json memory{{"host_peak_gb", found.host_gb}, {"gpu_gb", nullptr}, {"gpu_total_gb", nullptr}};
  if (found.gpu_gb) memory.update({{"gpu_gb", *found.gpu_gb}, {"gpu_total_gb", 100.0}});
  const nlohmann::json document{{"step_ms", found.step_ms},
                                {"data_wait_ms", 0.0},
                                {"samples_per_s", 1e3 * samples / found.step_ms},
                                {"memory", memory},
                                {"bottleneck", {{"name", "storage"}, {"evidence", "the disk is slow"}}},
                                {"losses", found.losses},
                                {"suggestions", suggestions}};
  return document.dump();
}

namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Reading and computing go on side by side, and both take 10 ms a sample: memory and halves bring each down to 1.
Measured reads_as_long_as_it_computes(const Options& options) {
  const auto samples = static_cast<double>(options.data.batch_size);
  const double read = options.data.cache_gb == 7 ? 1 : 10, compute = options.training.precision == "32" ? 10 : 1;
  Measured found{.step_ms = samples * std::max(read, compute)};
  if (read > compute) found.suggestions = {{{"data.cache_gb=7"}, samples * compute, "in memory", true}};
  return found;
}

TEST(Tune, WhereTwoThingsTakeAsLongTheyAreChangedTogether) {
  Machine machine(reads_as_long_as_it_computes);
  TuneRequest request = machine.request();
  request.allow = {"precision"};
  const TuneResult result = machine.search(request);
  ASSERT_THAT(names_of(result), ElementsAre("as it is", "training.precision=bf16-mixed", "data.cache_gb=7"));
  EXPECT_THAT(result.chosen, ElementsAre("data.cache_gb=7", "training.precision=bf16-mixed"));
  EXPECT_EQ(result.trials[1].verdict, TrialVerdict::kNotBetter);
  EXPECT_THAT(result.trials[1].note, HasSubstr("limited by storage"));
  EXPECT_EQ(result.trials[2].verdict, TrialVerdict::kBetter);
  EXPECT_DOUBLE_EQ(result.trials[2].gain.value(), 10);
  EXPECT_EQ(result.trials[2].predicted_step_ms, 1);
  EXPECT_EQ(machine.turns(), 1) << "halves alone need no turns: their own profile says what holds them back";
  for (const std::string& evidence : result.evidence) EXPECT_THAT(evidence, HasSubstr("100.00 -> 1000.00 samples/s"));
}

TEST(Tune, NothingThatChangesTheResultIsTriedUnlessAllowed) {
  Machine machine(reads_as_long_as_it_computes);
  const TuneResult result = machine.search(machine.request());
  ASSERT_THAT(names_of(result), ElementsAre("as it is"));
  EXPECT_TRUE(result.chosen.empty());
}

TEST(Tune, AChangeMustNotChangeTheLossOfTheFirstSteps) {
  Machine machine([](const Options& options) {
    Measured found{.step_ms = options.data.num_workers == 1 ? 10.0 : 2.0};
    if (options.data.num_workers == 1) found.suggestions = {{{"data.num_workers=4"}, 2, "threads", true}};
    if (options.data.num_workers == 4) found.losses[1] = 0.61;
    return found;
  });
  const TuneResult result = machine.search(machine.request());
  ASSERT_EQ(result.trials.size(), 2u);
  EXPECT_EQ(result.trials[1].verdict, TrialVerdict::kOtherLoss);
  EXPECT_NEAR(result.trials[1].loss_difference.value(), 0.01 / 0.61, 1e-12);
  EXPECT_TRUE(result.chosen.empty());
}

// Each doubling takes a tenth less time a sample; from 4 samples on there is no room.
TEST(Tune, TheBatchGrowsWhileItFitsAndWhatDoesNotIsATrialToo) {
  Machine machine([](const Options& options) {
    const int64_t batch = options.data.batch_size;
    Measured found{.step_ms = static_cast<double>(options.training.accumulate) * (batch == 1 ? 10 : 18)};
    if (batch > 2) found.end = ChildEnd::kOutOfMemory;
    return found;
  });
  TuneRequest request = machine.request();
  request.allow = {"batch"};
  request.overrides = {"training.accumulate=4"};
  const TuneResult result = machine.search(request);
  const std::string beyond = "data.batch_size=4 training.accumulate=1";
  ASSERT_THAT(names_of(result), ElementsAre("as it is", "data.batch_size=2 training.accumulate=2", beyond,
                                            beyond + " model.use_checkpoint=true"));
  EXPECT_EQ(result.trials[2].verdict, TrialVerdict::kOutOfMemory);
  EXPECT_EQ(result.trials[2].note, "no room");
  EXPECT_THAT(result.chosen, ElementsAre("data.batch_size=2", "training.accumulate=2"));
  ASSERT_TRUE(result.batches);
  EXPECT_EQ(result.batches->fastest, 2);
  EXPECT_EQ(result.batches->largest, 2);
  EXPECT_EQ(result.batches->too_large, 4);
}

TEST(Tune, WhatDoesNotFitIsTriedOnceMoreWithActivationsThatAreNotKept) {
  Machine machine([](const Options& options) {
    const bool twice = options.data.batch_size == 2, kept = !options.model.use_checkpoint;
    Measured found{.step_ms = twice ? 15.0 : 10.0 * static_cast<double>(options.data.batch_size)};
    if (twice && kept) found.end = ChildEnd::kOutOfMemory;
    return found;
  });
  TuneRequest request = machine.request();
  request.allow = {"batch"};
  const TuneResult result = machine.search(request);
  ASSERT_GE(result.trials.size(), 3u);
  EXPECT_EQ(result.trials[1].verdict, TrialVerdict::kOutOfMemory);
  EXPECT_EQ(result.trials[2].name, "data.batch_size=2 model.use_checkpoint=true");
  EXPECT_THAT(result.chosen, ElementsAre("data.batch_size=2", "model.use_checkpoint=true"));
}

TEST(Tune, OnAGpuGraphsAndPrecisionComeFirst) {
  const auto names = [](const std::optional<double>& gpu_gb, const std::string& override) {
    Machine machine([&](const Options& options) {
      const auto samples = static_cast<double>(options.data.batch_size);
      return Measured{.step_ms = options.training.cuda_graph == "off" ? 20 * samples : 10 * samples, .gpu_gb = gpu_gb};
    });
    TuneRequest request = machine.request();
    request.overrides = {override};
    request.allow = {"batch", "precision"};
    return names_of(machine.search(request));
  };
  const std::string batch = "data.batch_size=2", halves = "training.precision=bf16-mixed";
  EXPECT_THAT(names(std::nullopt, "training.cuda_graph=auto"), ElementsAre("as it is", batch, halves));
  EXPECT_THAT(names(40, "training.cuda_graph=auto"), ElementsAre("as it is", halves, batch));
  EXPECT_THAT(names(40, "training.cuda_graph=off"), ElementsAre("as it is", "training.cuda_graph=auto", halves, batch));
}

TEST(Tune, TheMemoryOfTheGpuStaysUnderTheTargetToo) {
  const auto chosen = [](double gpu_gb, double target) {
    Machine machine([&](const Options& options) {
      const bool twice = options.data.batch_size == 2;
      return Measured{.step_ms = twice ? 12.0 : 10.0 * static_cast<double>(options.data.batch_size),
                      .gpu_gb = twice ? gpu_gb : 40};
    });
    TuneRequest request = machine.request();
    request.allow = {"batch"};
    request.memory_target = target;
    const TuneResult result = machine.search(request);
    EXPECT_EQ(result.trials[1].gpu_memory_gb, gpu_gb);
    return result.chosen;
  };
  EXPECT_THAT(chosen(89, 0.9), ElementsAre("data.batch_size=2"));
  EXPECT_THAT(chosen(91, 0.9), ElementsAre());
  EXPECT_THAT(chosen(91, 0.95), ElementsAre("data.batch_size=2"));
}

TEST(Tune, NoTrialBeginsThatTheTimeWouldNotHold) {
  Machine machine([](const Options& options) {
    const auto workers = static_cast<double>(options.data.num_workers);
    return Measured{
        .step_ms = 100 / workers,
        .suggestions = {{{concat("data.num_workers=", options.data.num_workers + 1)}, 50 / workers, "", true}}};
  });
  TuneRequest request = machine.request();
  request.minutes = 2;
  const double begin = machine.now();
  const TuneResult result = machine.search(request);
  EXPECT_LE(machine.now() - begin, 90) << "a quarter is kept for the comparison at the end";
  EXPECT_GT(machine.now() - begin, 90 - 2 * (kSecondsOfATrial + kSecondsOfTurns));
  EXPECT_EQ(result.chosen, result.trials.back().changes);
}

TEST(Tune, ARecipeThatCannotBeMeasuredIsRefused) {
  Machine machine([](const Options&) { return Measured{.end = ChildEnd::kFailed}; });
  EXPECT_THROW(machine.search(machine.request()), Error);
}

// A rung is kept where the samples a second rose, and the next ones stand on it.
TEST(TunePlan, TheGuidesLadderInTheirOrderKeepsWhatHelps) {
  Machine machine([](const Options& options) {
    const int64_t batch = options.data.batch_size;
    double ms = batch == 1 ? 10 : batch == 2 ? 15 : 40;  // two: a third more samples
    if (options.data.prefetch_factor > 1) ms *= 1.1;
    if (options.training.precision == "bf16-mixed") ms /= 2;
    Measured found{.step_ms = ms * static_cast<double>(options.training.accumulate)};
    if (options.data.num_workers > 1) found.losses[2] = std::nan("");
    return found;
  });
  TuneRequest request = machine.request();
  request.plan = "aggressive";
  const TuneResult steep = machine.climb(request);
  EXPECT_THAT(steep.chosen, ElementsAre("training.precision=bf16-mixed")) << "a batch of 4 takes four times as long";
  EXPECT_EQ(steep.batches->largest, 4);
  EXPECT_EQ(steep.batches->fastest, 1);
  request.plan = "balanced";
  const TuneResult result = machine.climb(request);
  std::vector<std::string> keys;
  for (const Trial& trial : result.trials) keys.push_back(trial.name.substr(0, trial.name.find('=')));
  EXPECT_THAT(keys, ElementsAre("as it is", "data.batch_size", "data.num_workers", "data.prefetch_factor",
                                "training.precision", "training.accumulate"));
  EXPECT_THAT(result.chosen, ElementsAre("data.batch_size=2", "training.precision=bf16-mixed"));
  EXPECT_NEAR(result.trials[1].gain.value(), 4 / 3.0, 1e-9);
  EXPECT_EQ(result.batches->fastest, 2);
  EXPECT_NEAR(result.trials[4].gain.value(), 2, 1e-9) << "against the rung that it stands on";
  for (size_t i = 1; i < result.trials.size(); ++i) EXPECT_THAT(result.trials[i].note, HasSubstr("risk: "));
  EXPECT_THAT(machine.first_arguments(), testing::IsSupersetOf({"--steps", "50"}));
}

TEST(TunePlan, WhatTheTimeDidNotReachIsNamed) {
  Machine machine([](const Options&) { return Measured{}; });
  TuneRequest request = machine.request();
  request.plan = "conservative";
  request.minutes = 1.5 * kSecondsOfATrial / 60;
  const TuneResult result = machine.climb(request);
  EXPECT_EQ(result.trials.size(), 2u);
  ASSERT_EQ(result.not_tried.size(), 2u);
  EXPECT_THAT(result.not_tried[1], HasSubstr("data.prefetch_factor"));
}

TEST(TuneAblate, EachChangeAloneThenThoseThatHelpedTogetherAtEqualSamples) {
  int run = 0;
  Machine machine([&](const Options& options) {
    Measured found{.step_ms = options.data.batch_size == 2 ? 16.0 : 10.0, .losses = {8, 7, 6, 5, 4, 3, 2, 1}};
    if (options.training.precision == "bf16-mixed") found.step_ms /= 2;
    if (options.data.prefetch_factor > 1) found.step_ms *= 0.97;
    if (options.model.filters.size() == 2) found.end = ChildEnd::kTooSlow;
    if (options.model.use_checkpoint) found.losses.pop_back();
    if (run++ == 1) found.step_ms = 10.5;  // the recipe once more: so much is chance
    return found;
  });
  TuneRequest request = machine.request();
  request.ablate = true;
  const TuneResult result = machine.ablate(request);
  ASSERT_THAT(names_of(result), ElementsAre("as it is", "as it is, again", "bf16", "batch x2", "workers x4",
                                            "prefetch x4", "activation checkpoints", "smaller patches", "flips only",
                                            "rare logging", "no visualisation", "half the filters", "one level less",
                                            "BasicUNet", "MedNeXt-S", "all that were faster, together"));
  EXPECT_EQ(result.trials[2].verdict, TrialVerdict::kFaster);
  EXPECT_EQ(result.trials[3].equal_samples_loss, 5) << "half as many steps of twice the samples";
  EXPECT_EQ(result.trials[5].verdict, TrialVerdict::kNotBetter) << "three per cent are chance";
  EXPECT_EQ(result.trials[5].equal_samples_loss, 1);
  EXPECT_EQ(result.trials[6].equal_samples_loss, std::nullopt) << "it ended a step too early to be compared";
  EXPECT_THAT(machine.first_arguments(), testing::IsSupersetOf({"--losses", "16"}));
  EXPECT_EQ(result.trials[12].verdict, TrialVerdict::kTooSlow);
  EXPECT_THAT(result.trials.back().changes, ElementsAre("data.batch_size=2", "training.precision=bf16-mixed"));
  EXPECT_DOUBLE_EQ(result.trials.back().gain.value(), 2.5);
}

}  // namespace
}  // namespace vox
