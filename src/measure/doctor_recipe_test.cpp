// Recipes on machines that are not there: facts are given, the judgement is tested.
#include "measure/doctor_recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace vox {
namespace {

using testing::HasSubstr;

RecipeFacts recipe_of(const std::string& yaml) {
  RecipeFacts facts;
  facts.config = parse_config(yaml, "/");
  facts.name = "r.yaml";
  facts.cpus = 8;
  facts.memory_bytes = int64_t{32} << 30;
  facts.run_free_bytes = facts.cache_free_bytes = int64_t{100} << 30;
  facts.data.train = 4;
  facts.data.validation = 1;
  facts.data.stored_bytes = int64_t{1} << 30;
  facts.network.memory.activations = int64_t{1} << 30;
  facts.network.memory_doubled.activations = int64_t{2} << 30;
  facts.network.checkpoint_bytes = int64_t{100} << 20;
  return facts;
}
Finding lint(const RecipeFacts& facts, const std::string& name) {
  for (const Finding& finding : examine_recipe(facts))
    if (finding.name == name) return finding;
  return {};
}

TEST(DoctorRecipe, AGoodRecipeIsFine) {
  for (const Finding& finding : examine_recipe(recipe_of("{}"))) {
    EXPECT_EQ(finding.verdict, Outlook::kFine) << finding.name << ": " << finding.sentence;
    EXPECT_FALSE(finding.proof.empty()) << finding.name;
  }
}

TEST(DoctorRecipe, WorkersAndPrefetch) {
  const auto workers = [](const std::string& count) {
    return lint(recipe_of("data: {num_workers: " + count + "}"), "workers");
  };
  EXPECT_EQ(workers("1").verdict, Outlook::kHurts);
  EXPECT_EQ(workers("1").proof, "voxloom profile r.yaml --data-only");
  EXPECT_EQ(workers("4").verdict, Outlook::kFine);
  EXPECT_THAT(workers("9").sentence, HasSubstr("take turns"));
  EXPECT_EQ(lint(recipe_of("data: {prefetch_factor: 1}"), "prefetch").verdict, Outlook::kHurts);
}

TEST(DoctorRecipe, BatchAndMemory) {
  RecipeFacts facts = recipe_of("{data: {batch_size: 1}, training: {accumulate: 4}}");
  EXPECT_EQ(lint(facts, "batch").verdict, Outlook::kHurts);
  EXPECT_THAT(lint(facts, "batch").sentence, HasSubstr("effective batch 4"));
  facts.network.memory_doubled.activations = int64_t{20} << 30;
  EXPECT_EQ(lint(facts, "batch").verdict, Outlook::kFine);
  facts.network.memory.activations = int64_t{40} << 30;
  EXPECT_EQ(lint(facts, "network").verdict, Outlook::kFails);
  facts.gpus = 1;
  facts.gpu_free_bytes = int64_t{24} << 30;
  EXPECT_EQ(lint(facts, "network").verdict, Outlook::kHurts);  // the micro-batch can shrink
  EXPECT_EQ(lint(recipe_of("{data: {batch_size: 1}, model: {norm: batch}}"), "batch").verdict, Outlook::kHurts);
}

TEST(DoctorRecipe, PrecisionAndDevice) {
  RecipeFacts facts = recipe_of("{}");
  facts.gpus = 1;
  facts.gpu_capability = 90;
  EXPECT_THAT(lint(facts, "precision").sentence, HasSubstr("bf16-mixed"));
  facts.gpu_capability = 75;
  EXPECT_THAT(lint(facts, "precision").sentence, HasSubstr("; 16-mixed"));
  facts.gpu_capability = 61;
  EXPECT_EQ(lint(facts, "precision").verdict, Outlook::kFine);
  EXPECT_EQ(lint(recipe_of("training: {precision: bf16-mixed}"), "precision").verdict, Outlook::kHurts);
  EXPECT_EQ(lint(recipe_of("system: {num_gpus: 1}"), "device").verdict, Outlook::kFails);
  facts = recipe_of("system: {num_gpus: 4}");
  EXPECT_EQ(lint(facts, "device").verdict, Outlook::kFails);
  facts.gpus = 3;
  EXPECT_EQ(lint(facts, "device").verdict, Outlook::kFails);
  facts.gpus = 4;
  EXPECT_EQ(lint(facts, "device").sentence, "trains on 4 GPUs, a process each");
}

TEST(DoctorRecipe, IsJudgedByTheGpuThatTrainingWouldTake) {
  MachineView machine;
  machine.root = "/nonexistent";
  machine.torch.gpus = 1;
  machine.gpus.gpus = {{.name = "A", .uuid = "GPU-0a1", .free_bytes = 1, .capability = 61},
                       {.name = "B", .uuid = "GPU-7c2", .free_bytes = 80, .capability = 90}};
  const Config config = parse_config("{}", "/");
  const auto facts = [&] { return recipe_facts(config, "r.yaml", machine); };
  EXPECT_EQ(facts().gpu_free_bytes, 1);
  for (const char* visible : {"1", "GPU-7c2", "GPU-7", "1,0"}) {
    machine.visible = visible;
    EXPECT_EQ(facts().gpu_free_bytes, 80) << visible;
    EXPECT_EQ(facts().gpu_capability, 90) << visible;
    EXPECT_THAT(examine_gpu(machine)[0].sentence, HasSubstr("the first an B"));
    EXPECT_EQ(examine_gpu_state(machine)[0].name, "gpu 1") << visible;
  }
  machine.visible = "5,1";
  EXPECT_EQ(facts().gpu_capability, 0) << "CUDA stops at the one that it does not know";
  EXPECT_TRUE(examine_gpu_state(machine).empty());
  machine.visible = "1";
  machine.device = "cpu";
  EXPECT_EQ(facts().gpus, 0);
  EXPECT_EQ(lint(facts(), "device").sentence, "trains on the CPU");
  machine.device = "cuda";
  EXPECT_EQ(lint(facts(), "device").sentence, "trains on one GPU");
  machine.torch.kernels = false;
  EXPECT_EQ(facts().gpus, 0) << "torch sees one, but this build has no kernels for it";
  EXPECT_EQ(lint(facts(), "device").verdict, Outlook::kFails);
  machine.device = "";
  EXPECT_EQ(lint(facts(), "device").sentence, "trains on the CPU");
}

TEST(DoctorRecipe, CacheAgainstMemoryAndDisk) {
  RecipeFacts facts = recipe_of("data: {cache_gb: 4}");
  facts.data.stored_bytes = facts.data.restored_bytes = int64_t{10} << 30;
  EXPECT_THAT(lint(facts, "cache").sentence, HasSubstr("set data.cache_gb to 10"));
  facts.data.stored_bytes = int64_t{200} << 30;
  EXPECT_EQ(lint(facts, "cache").verdict, Outlook::kFine);  // from disk, and nothing better is possible
  facts.cache_free_bytes = int64_t{1} << 30;
  EXPECT_EQ(lint(facts, "cache").verdict, Outlook::kFails);
  facts = recipe_of("data: {cache_gb: 64}");
  facts.data.stored_bytes = int64_t{40} << 30;
  EXPECT_THAT(lint(facts, "cache").sentence, HasSubstr("would be killed"));
  facts.run_free_bytes = int64_t{300} << 20;
  EXPECT_EQ(lint(facts, "checkpoints").verdict, Outlook::kFails);
}

TEST(DoctorRecipe, DataAndPatch) {
  RecipeFacts facts = recipe_of("data: {patch_size: [64, 64, 400]}");
  facts.data.narrow_cases = 3;
  facts.data.narrow_case = "s1";
  facts.data.narrow = {320, 320, 320};
  EXPECT_THAT(lint(facts, "patch").sentence, HasSubstr("3 of the cases"));
  EXPECT_THAT(lint(facts, "patch").sentence, HasSubstr("s1, is 320x320x320"));
  EXPECT_EQ(lint(facts, "patch").verdict, Outlook::kHurts);
  facts.config.options.data.padding = "none";
  EXPECT_EQ(lint(facts, "patch").verdict, Outlook::kFails);
  facts.data.network = "nfs4 server:/export";
  EXPECT_THAT(lint(facts, "data").sentence, HasSubstr("data.stage_dir"));
  facts.data.validation = 0;
  EXPECT_EQ(lint(facts, "data").verdict, Outlook::kHurts);
  facts = recipe_of("data: {on_bad_case: skip}");
  facts.data.left_out = 2;
  facts.data.why_left_out = "case s7: cut short";
  EXPECT_EQ(lint(facts, "data").verdict, Outlook::kHurts);
  EXPECT_THAT(lint(facts, "data").sentence, HasSubstr("2 left out as data.on_bad_case says, the first: case s7"));
  facts.data.train = 0;
  EXPECT_THAT(lint(facts, "data").sentence, HasSubstr("no case is left for training: case s7"));
  facts.data.problem = "no such folder";
  EXPECT_EQ(lint(facts, "data").verdict, Outlook::kFails);
  facts.data.to_be_made = true;
  EXPECT_EQ(lint(facts, "data").verdict, Outlook::kFine);
}

TEST(DoctorRecipe, KeysThatChangeNothing) {
  const auto key = [](const std::string& yaml) { return lint(recipe_of(yaml), "keys"); };
  EXPECT_THAT(key("data: {persistent_workers: true}").sentence, HasSubstr("data.persistent_workers has no effect"));
  EXPECT_THAT(key("training: {momentum: 0.9, optimizer: adamw}").sentence, HasSubstr("only training.optimizer: sgd"));
  EXPECT_EQ(key("training: {momentum: 0.9, optimizer: sgd}").verdict, Outlook::kFine);
  EXPECT_THAT(key("training: {warmup_start: 0.2}").sentence, HasSubstr("training.warmup_steps is 0"));
  EXPECT_EQ(key("training: {warmup_start: 0.2, schedule: warmup_cosine}").verdict, Outlook::kFine);  // has a default
  EXPECT_THAT(key("data: {pad_value: 3, padding: edge}").sentence, HasSubstr("data.pad_value has no effect"));
  EXPECT_EQ(key("data: {pad_value: 3, padding: none}").verdict, Outlook::kFine);  // outside of what is turned
  EXPECT_THAT(key("augmentation: {noise: {sigma: [0, 0.2]}}").sentence, HasSubstr("augmentation.noise.enabled is off"));
  EXPECT_EQ(key("augmentation: {noise: {sigma: [0, 0.2], enabled: true}}").verdict, Outlook::kFine);
  EXPECT_THAT(key("model: {architecture: monai_unet, deep_supervision: true}").sentence,
              HasSubstr("a monai_unet has no coarser outputs"));
  EXPECT_THAT(key("model: {architecture: rsunet, dropout: 0.2}").sentence, HasSubstr("model.dropout has no effect"));
  EXPECT_EQ(key("model: {architecture: unet, deep_supervision: true, dropout: 0.2}").verdict, Outlook::kFine);
}

}  // namespace
}  // namespace vox
