// What tune tries and keeps on machines that are invented: the times of a step follow from the settings, the clock is
// turned by the trials, and every profile's suggestions are known.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "measure/tune_trials.h"

namespace vox {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr double kSecondsOfATrial = 10, kSecondsOfTurns = 4;

struct Measured {  // what the profile of some settings says
  double step_ms = 10;
  std::vector<Suggestion> suggestions{};
  double host_gb = 0.1;
  std::optional<double> gpu_gb{};  // of 100
  std::vector<double> losses{0.7, 0.6, 0.5};
  ChildEnd end = ChildEnd::kDone;
};

class Machine {
 public:
  explicit Machine(std::function<Measured(const Options&)> measure) : measure_(std::move(measure)) {
    write_file(recipe_,
               "data: {patch_size: [16, 16, 16], batch_size: 1, num_workers: 1, prefetch_factor: 1}\n"
               "training: {precision: 32}\nmodel: {filters: [8, 16, 32]}\n");
  }
  ~Machine() { fs::remove(recipe_); }

  TuneRequest request() const { return {.recipe = recipe_, .overrides = {}, .minutes = 10}; }
  TuneResult search(const TuneRequest& request) { return with_runner(request, search_settings); }
  TuneResult climb(const TuneRequest& request) { return with_runner(request, climb_plan); }
  TuneResult ablate(const TuneRequest& request) { return with_runner(request, ablate_settings); }

  const std::vector<std::string>& first_arguments() const { return first_arguments_; }
  double now() const { return now_; }
  int turns() const { return turns_; }

 private:
  TuneResult with_runner(const TuneRequest& request, TuneResult (*way)(TrialRunner&)) {
    TrialRunner runner(request, {.run = [this](const auto& words, const ChildLimits&) { return run(words); },
                                 .compare = [this](const CompareRequest& both) { return compare(both); },
                                 .seconds = [this] { return now_; }});
    return way(runner);
  }

  Options options_of(const std::vector<std::string>& words) const {
    std::vector<std::string> overrides;
    std::copy_if(words.begin(), words.end(), std::back_inserter(overrides),
                 [](const std::string& word) { return word.find('=') != std::string::npos; });
    return load_config(recipe_, overrides).options;
  }

  ChildResult run(const std::vector<std::string>& arguments) {
    if (first_arguments_.empty()) first_arguments_ = arguments;
    now_ += kSecondsOfATrial;
    const Options options = options_of(arguments);
    const Measured found = measure_(options);
    if (found.end != ChildEnd::kDone) return {.end = found.end, .said = "no room", .seconds = kSecondsOfATrial};
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
    return {.output = document.dump(), .said = {}, .seconds = kSecondsOfATrial};
  }

  Comparison compare(const CompareRequest& both) {
    now_ += kSecondsOfTurns;
    ++turns_;
    const double first = measure_(options_of(both.first)).step_ms, second = measure_(options_of(both.second)).step_ms;
    return {.first_ms = {first},
            .second_ms = {second},
            .ratios = {second / first},
            .ratio = second / first,
            .interval = {second / first, second / first}};
  }

  const std::string recipe_ = testing::TempDir() + "tuned_recipe.yaml";
  std::function<Measured(const Options&)> measure_;
  std::vector<std::string> first_arguments_;
  double now_ = 1000;
  int turns_ = 0;
};

std::vector<std::string> names_of(const TuneResult& result) {
  std::vector<std::string> names;
  for (const Trial& trial : result.trials) names.push_back(trial.name);
  return names;
}

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

TEST(TunedRecipe, IsTheOneThatWasMeasured) {
  const fs::path folder = fs::temp_directory_path() / concat("voxloom-tuned-", getpid());
  fs::create_directories(folder / "tuned");
  write_file(folder / "recipe.yaml", "data: {root: elsewhere, num_workers: 4}\n");
  write_file(folder / "below.yaml", "training: {seed: 7}\n");
  write_file(folder / "open.yaml", "data: {root: \"${VOXLOOM_NOT_SET}\"}\n");
  const fs::path output = folder / "tuned" / "recipe.yaml";
  TuneResult result;
  result.chosen = {"data.num_workers=2", "model.filters=8,16"};
  result.evidence = {"faster", "fewer"};
  for (const char* name : {"recipe.yaml", "open.yaml"}) {
    // A path that the recipe's folder begins, an alias of what was chosen, a recipe below, a list.
    const TuneRequest request{.recipe = (folder / name).string(),
                              .overrides = {"data.root=data/scrolls", "training.workers=1",
                                            concat("extends=", (folder / "below.yaml").string()),
                                            "data.patch_size=16,16,16", "augmentation.flip.enabled=true"}};
    std::vector<std::string> words = request.overrides;
    words.insert(words.end(), result.chosen.begin(), result.chosen.end());
    const std::string text = tuned_yaml(request, result, output.string());
    write_file(output, text);
    const Options measured = load_config(request.recipe, words).options, written = load_config(output).options;
    EXPECT_TRUE(differences(measured, written).empty()) << text;
    EXPECT_EQ(written.data.root, (folder / "data/scrolls").string());
    EXPECT_EQ(written.data.num_workers, 2);
    EXPECT_EQ(written.training.seed, 7);
    EXPECT_THAT(text, HasSubstr("faster"));
  }
  fs::remove_all(folder);
}

TuneResult chosen_with_ratio(double ratio) {
  TuneResult result;
  result.chosen = {"system.compute_threads=2"};
  result.evidence = {"faster"};
  result.comparison = Comparison{.first_ms = {10}, .second_ms = {10 * ratio}, .ratios = {ratio}, .ratio = ratio};
  result.speedup = 1 / ratio;
  return result;
}

TEST(Tune, WhatWasNoFasterWhenItWasMeasuredAgainIsNotRecommended) {
  for (const double slower : {1.0, 1.2, 3.137}) {
    TuneResult result = chosen_with_ratio(slower);
    require_faster_again(result, 1);
    EXPECT_TRUE(result.chosen.empty() && result.evidence.empty() && !result.comparison) << slower;
    EXPECT_EQ(result.speedup, 1);
    EXPECT_THAT(result.speedup_note, HasSubstr("system.compute_threads=2 seemed faster"));
  }
  TuneResult faster = chosen_with_ratio(0.8);
  require_faster_again(faster, 1);
  EXPECT_THAT(faster.chosen, ElementsAre("system.compute_threads=2"));
  TuneResult larger = chosen_with_ratio(1.5);  // a step of twice the batch
  require_faster_again(larger, 2);
  EXPECT_THAT(larger.chosen, ElementsAre("system.compute_threads=2"));
  EXPECT_EQ(larger.speedup_note, "");
}

}  // namespace
}  // namespace vox
