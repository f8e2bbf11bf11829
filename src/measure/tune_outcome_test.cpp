// What tune recommends in the end, and how it says so.
#include <gmock/gmock.h>
#include <unistd.h>

#include "base/text.h"
#include "measure/invented_machine.h"
#include "train/threads.h"

namespace vox {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

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

// Two workers make a step a twentieth faster.
Measured a_little_faster(const Options& options) {
  Measured found{.step_ms = options.data.num_workers == 1 ? 10.0 : 9.5};
  if (options.data.num_workers == 1) found.suggestions = {{{"data.num_workers=2"}, 5, "threads", true}};
  return found;
}

TEST(Tune, FewTurnsDecideOnlyWhatIsPlain) {
  Machine machine(a_little_faster);
  EXPECT_THAT(machine.search(machine.request()).chosen, ElementsAre("data.num_workers=2"));
  machine.take_turns_only(3);
  const TuneResult result = machine.search(machine.request());
  EXPECT_THAT(result.chosen, ElementsAre());
  EXPECT_THAT(result.trials.at(1).note, HasSubstr("in 3 turns +5.3 %, 75 %: +5.3 % to +5.3 %; too few turns"));
  Machine plain([](const Options& options) {
    Measured found = a_little_faster(options);
    if (options.data.num_workers == 2) found.step_ms = 8;
    return found;
  });
  plain.take_turns_only(3);
  EXPECT_THAT(plain.search(plain.request()).chosen, ElementsAre("data.num_workers=2"));
}

// Small patches leave this machine idle: eight times the voxels take four times as long.
Measured likes_large_patches(const Options& options) {
  return {.step_ms = options.data.patch_size == Extent3{32, 32, 32} ? 20.0 : 5.0};
}

TEST(Tune, AnotherPatchIsComparedByItsVoxels) {
  Machine machine(likes_large_patches);
  TuneResult before;
  before.chosen = {"data.patch_size=32,32,32"};
  before.evidence = {"faster"};
  const TuneResult result = machine.again(machine.request(), before);
  EXPECT_DOUBLE_EQ(result.speedup, 2);
  EXPECT_EQ(result.speedup_of, "voxels");
  EXPECT_THAT(tuned_yaml(machine.request(), result, "tuned.yaml"), HasSubstr("2.00 times its voxels a second"));
  const Trial small{.samples_per_s = 200, .voxels_per_s = 200 * 4096},
      large{.samples_per_s = 50, .voxels_per_s = 1638400};
  EXPECT_EQ(speed_text(small, large), "0.819 -> 1.638 million voxels/s");
  EXPECT_EQ(speed_text(small, small), "200.00 -> 200.00 samples/s");
}

TEST(Tune, APatchThatRoundsBackToItselfIsNoChange) {
  const auto tried = [](const std::string& size) {
    Machine machine([](const Options& options) {
      return Measured{.step_ms = 1e-3 * static_cast<double>(options.data.patch_size.voxels())};
    });
    TuneRequest request = machine.request();
    request.overrides = {"data.patch_size=" + size};
    request.allow = {"patch"};
    return names_of(machine.search(request));
  };
  EXPECT_THAT(tried("16,16,16"), ElementsAre("as it is"));
  EXPECT_THAT(tried("48,48,48"), ElementsAre("as it is", "data.patch_size=32,32,32"));
  EXPECT_THAT(tried("64,64,64"), ElementsAre("as it is", "data.patch_size=80,80,80", "data.patch_size=48,48,48"));
}

TEST(Tune, TheFastestBatchIsThatOfTheRecipeWhereTheChoiceIsTakenBack) {
  Machine machine(
      [](const Options& options) { return Measured{.step_ms = options.data.batch_size == 2 ? 25.0 : 10.0}; });
  TuneResult before;
  before.chosen = {"data.batch_size=2"};
  before.evidence = {"seemed faster"};
  before.batches = TriedBatches{.fastest = 2, .largest = 2};
  const TuneResult result = machine.again(machine.request(), before, {"data.batch_size=2"});
  EXPECT_THAT(result.chosen, ElementsAre());
  ASSERT_TRUE(result.batches);
  EXPECT_EQ(result.batches->fastest, 1);
  EXPECT_EQ(result.batches->largest, 2);
}

TEST(TuneAblate, FourTimesTheWorkersThatThereAre) {
  const auto row = [](const std::vector<std::string>& overrides) {
    Machine machine([](const Options&) { return Measured{.gpu_gb = 1}; });
    TuneRequest request = machine.request();
    request.ablate = true;
    request.overrides = overrides;
    for (const Trial& trial : machine.ablate(request).trials)
      if (trial.name == "workers x4") return join(trial.changes, " ");
    return std::string("none");
  };
  EXPECT_EQ(row({"data.num_workers=3"}), "data.num_workers=12");
  Options automatic;
  automatic.data.num_workers = -1;
  const int now = plan_threads(automatic, ComputeOn::kGpu).data;
  EXPECT_EQ(row({"data.num_workers=auto"}), concat("data.num_workers=", 4 * now));
  EXPECT_EQ(row({"data.num_workers=auto", "system.num_cpus=8"}), "none") << "six feed the GPU, two compute";
}

}  // namespace
}  // namespace vox
