// Names of the field load, are mapped or ignored, and say so once. The recipes here have the shapes that the field's
// guides print: odd indentation, repeated keys and sections, comments between.
#include "config/aliases.h"

#include <algorithm>
#include <regex>

#include "base/text.h"
#include "config/schema.h"
#include "config/test_support.h"

namespace vox {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

KeyReport report_of(const Config& config, const std::string& key) {
  for (const KeyReport& report : config.keys)
    if (report.key == key) return report;
  ADD_FAILURE() << key << " is not reported";
  return {};
}

TEST(Aliases, EveryNameSetsItsOption) {
  const Options options = options_of(
      "training: {workers: 6, train_batch_size: 4, train_iterations_per_epoch: 2000, accumulate_steps: 3,"
      " precision: amp, log_every_n_steps: 50}\nvisualization: {enabled: false}\n");
  EXPECT_EQ(options.data.num_workers, 6);
  EXPECT_EQ(options.data.batch_size, 4);
  EXPECT_EQ(options.training.iterations_per_epoch, "2000");
  EXPECT_EQ(options.training.accumulate, 3);
  EXPECT_EQ(options.training.precision, "16-mixed");
  EXPECT_EQ(options.monitor.log_every, 50);
  EXPECT_FALSE(options.monitor.images);
  const Options more = options_of("data: {iter_num: 250, max_epochs: 400}\ntraining: {accumulate_grad_batches: 2}\n");
  EXPECT_EQ(more.training.iterations_per_epoch, "250");
  EXPECT_EQ(more.training.max_epochs, 400);
  EXPECT_EQ(more.training.accumulate, 2);
}

TEST(Aliases, EveryRowNamesAnOptionAndLoads) {
  for (const AliasRow& row : alias_rows()) {
    const std::vector<std::string> canonical = split(row.canonical, ':');
    EXPECT_TRUE(row.canonical.empty() || Schema::get().find(canonical[0])) << row.alias;
    const Config config = parse_config(row.alias + (row.alias.find(':') == std::string::npos ? ": 1" : ""), "/");
    ASSERT_EQ(config.keys.size(), 1u) << row.alias;
    EXPECT_EQ(config.keys[0].use, row.canonical.empty() ? KeyUse::kNoEffect : KeyUse::kMapped) << row.alias;
    EXPECT_EQ(config.warnings.size(), 1u) << row.alias;
    EXPECT_TRUE(!row.canonical.empty() || config.options == Options{}) << row.alias;
  }
}

TEST(Aliases, NamesWithoutEffectLoadInEverySectionOfTheField) {
  for (const AliasRow& row : alias_rows()) {
    if (!row.canonical.empty()) continue;
    for (const std::string section : {"system.", "model.", "data.", "training."}) {
      const Config config = parse_config("", "/", {section + row.alias + "=true"});
      EXPECT_EQ(report_of(config, section + row.alias).use, KeyUse::kNoEffect);
    }
  }
  EXPECT_THAT(error_of("monitor: {pin_memory: true}"), HasSubstr("unknown option"));
}

TEST(Aliases, AreSaidOnce) {
  const Folder folder;
  folder.write("a.yaml", "training: {workers: 1}\n");
  folder.write("b.yaml", "extends: a.yaml\ntraining: {workers: 2}\n");
  const Config config = load_config(folder.write("c.yaml", "extends: b.yaml\ntraining: {workers: 3}\n"));
  EXPECT_THAT(config.warnings, ElementsAre("training.workers is data.num_workers here"));
  EXPECT_EQ(report_of(config, "training.workers").use, KeyUse::kMapped);
  EXPECT_EQ(config.options.data.num_workers, 3);
}

TEST(Aliases, TwoNamesOfOneOptionInAFileSayWhichHolds) {
  const Config config = parse_config("data:\n  num_workers: 4\ntraining:\n  workers: 2\n", "/");
  EXPECT_EQ(config.options.data.num_workers, 2);
  EXPECT_THAT(config.warnings, Contains(HasSubstr("both set data.num_workers; the last one, 2, holds")));
}

TEST(Aliases, AWrongValueNamesWhatWasWritten) {
  EXPECT_THAT(error_of("training:\n  workers: lots\n"), HasSubstr("data.num_workers (recipe:2, as training.workers)"));
}

TEST(Aliases, WhatStandsBelowAKeyWithoutEffectHasNone) {
  const Config config =
      parse_config("training: {compile: {mode: max-autotune, dynamic: false}}\njit_compile: true\n", "/");
  EXPECT_EQ(report_of(config, "training.compile.mode").use, KeyUse::kNoEffect);
  EXPECT_EQ(report_of(config, "training.compile.dynamic").use, KeyUse::kNoEffect);
  EXPECT_THAT(report_of(config, "jit_compile").note, HasSubstr("has no effect: "));
}

TEST(Fragments, OddIndentationLoads) {
  const Config config =
      parse_config("   training:\n     train_batch_size: 2  # Change from 1\n     workers: 1  # Keep\n   ", "/");
  EXPECT_EQ(config.options.data.batch_size, 2);
  EXPECT_EQ(config.options.data.num_workers, 1);
}

TEST(Fragments, RepeatedSectionsAndNamesOfLaterNetworksLoad) {
  const Config config = parse_config(
      "training:\n  precision: \"bf16-mixed\"  # or\n\ndata:\n  num_workers: 4\n  pin_memory: true\n"
      "  persistent_workers: true\nmodel:\n  # Option A\n  architecture: mednext\n  mednext_size: S\n"
      "  use_checkpoint: true\n  filters: 32\n\n  # Option B\n  architecture: monai_basic_unet3d\n"
      "training:\n  log_every_n_steps: 50\naugmentation:\n  flip: {enabled: true, prob: 0.5}\n"
      "  rotate: {enabled: false}\n  elastic: {enabled: false}\nsystem:\n  num_gpus: 4\n  num_cpus: 8\n",
      "/");
  EXPECT_EQ(config.options.training.precision, "bf16-mixed");
  EXPECT_EQ(config.options.monitor.log_every, 50);
  EXPECT_EQ(config.options.model.architecture, "monai_basic_unet3d");
  EXPECT_EQ(config.options.system.num_gpus, 4);
  EXPECT_TRUE(config.options.augmentation.flip.enabled);
  EXPECT_EQ(report_of(config, "data.pin_memory").use, KeyUse::kNoEffect);
  EXPECT_EQ(config.keys.size(), 15u);
  EXPECT_EQ(config.warnings.size(), 4u);  // architecture twice, two without effect, one mapped
}

// Found without a YAML parser: a word, a colon, and a value on the same line.
std::vector<std::string> names_with_values(const std::string& text) {
  static const std::regex pattern(R"((\w+): *[^ {])");
  std::vector<std::string> names;
  for (const std::string& line : split(text, '\n')) {
    const std::string code = trim(line.substr(0, line.find('#')));
    for (std::sregex_iterator match(code.begin(), code.end(), pattern), end; match != end; ++match)
      names.push_back((*match)[1]);
  }
  EXPECT_FALSE(names.empty());
  return names;
}

TEST(Fragments, TheFieldsFilesLoadOnTopOfARecipe) {
  const char* given = std::getenv("VOXLOOM_SHARED");
  const fs::path shared = given ? fs::path(given) : fs::path(__FILE__).parent_path() / "../../../shared";
  if (!fs::is_directory(shared / "data/configs")) GTEST_SKIP() << "the folder of real data is not here";
  const Folder folder;
  folder.write("base.yaml", "data: {root: volumes, images: ['*.tif']}\ntraining: {lr: 0.5}\n");
  int count = 0;
  for (const auto& entry : fs::directory_iterator(shared / "data/configs")) {
    if (entry.path().extension() != ".yaml") continue;
    const std::string extends = "extends: [base.yaml, '" + fs::absolute(entry.path()).string() + "']\n";
    const Config config = load_config(folder.write("top.yaml", extends));
    EXPECT_EQ(config.options.training.lr, 0.5) << entry.path();
    EXPECT_GE(config.keys.size(), 5u) << entry.path();  // extends, the three of the base, and its own
    for (const std::string& name : names_with_values(read_file(entry.path()))) {
      const auto same = [&](const KeyReport& report) { return ends_with(report.key, "." + name); };
      EXPECT_TRUE(std::any_of(config.keys.begin(), config.keys.end(), same)) << name << " of " << entry.path();
    }
    ++count;
  }
  EXPECT_GT(count, 0);
}

}  // namespace
}  // namespace vox
