// Files, extends, overrides, repeated keys, variables and paths.
#include "config/test_support.h"

namespace vox {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

TEST(Config, AnEmptyRecipeIsTheDefaults) {
  EXPECT_EQ(options_of(""), Options{});
  EXPECT_EQ(options_of("data:\n  # nothing here\ntraining:\n"), Options{});
}

TEST(Config, TheMetricFollowsTheTargetUnlessItIsWritten) {
  EXPECT_EQ(options_of("").validation.metric, "dice");
  EXPECT_EQ(options_of("data: {target: regression}").validation.metric, "mae");
  EXPECT_EQ(options_of("data: {target: regression}\nvalidation: {metric: loss}").validation.metric, "loss");
  const auto metric_with = [](const std::string& terms) { return options_of("loss: " + terms).validation.metric; };
  EXPECT_EQ(metric_with("{terms: [{name: bce, target: affinity}]}"), "loss");
  EXPECT_EQ(metric_with("{terms: [{name: bce, target: affinity}, {name: dice}]}"), "dice");
  EXPECT_EQ(metric_with("{terms: [{name: bce, target: all}], targets: [{name: all, kind: foreground}]}"), "dice");
}

TEST(Config, UnknownKeysNameTheNearest) {
  EXPECT_THAT(error_of("data:\n  batch_sise: 4"),
              AllOf(HasSubstr("data.batch_sise (recipe:2): unknown option"), HasSubstr("\"data.batch_size\"")));
  EXPECT_THAT(error_of("training: {batch_size: 4}"), HasSubstr("did you mean \"data.batch_size\"?"));
  EXPECT_THAT(error_of("batch_size: 4"), HasSubstr("did you mean \"data.batch_size\"?"));
  EXPECT_THAT(error_of("trainning: {lr: 4}"), HasSubstr("did you mean \"training.lr\"?"));
  EXPECT_THAT(error_of("augmentation: {flp: {enabled: true}}"),
              HasSubstr("did you mean \"augmentation.flip.enabled\"?"));
  EXPECT_THAT(error_of("augmentation: {flip: {enable: true}}"),
              HasSubstr("did you mean \"augmentation.flip.enabled\"?"));
  EXPECT_THAT(error_of("modle: 3"), HasSubstr("did you mean \"model\"?"));
  EXPECT_THAT(error_of("zebra_crossing: 3"), HasSubstr("voxloom list options"));
  EXPECT_THAT(error_of("data: 3"), HasSubstr("expected a group of options"));
  EXPECT_THAT(error_of("", {"data.batch_sise=4"}), HasSubstr("data.batch_sise (command line)"));
}

TEST(Config, WhatIsNotYamlIsNamedByLine) {
  EXPECT_THAT(error_of("data:\n  images: [a, b\n"), HasSubstr("recipe:"));
  EXPECT_THAT(error_of("- a\n- b\n"), HasSubstr("expected sections"));
  EXPECT_THAT(error_of("data: {}\n---\ndata: {}\n"), HasSubstr("one YAML document"));
  EXPECT_THAT(error_of("data: &a [*a]\n"), Not(HasSubstr("no error")));
}

TEST(Config, RepeatedKeysTakeTheLastValueWithAWarning) {
  const Config config = parse_config(
      "model:\n  filters: [16, 32]\n  architecture: mednext\n  filters: [32, 64]\n  architecture: monai_basic_unet3d\n",
      "/");
  EXPECT_THAT(config.options.model.filters, ElementsAre(32, 64));
  EXPECT_EQ(config.options.model.architecture, "monai_basic_unet3d");
  EXPECT_THAT(config.warnings, ElementsAre(HasSubstr("model.filters is given twice (recipe:2 and recipe:4)"),
                                           HasSubstr("model.architecture is given twice (recipe:3 and recipe:5)")));
  EXPECT_EQ(config.keys.size(), 2u);
}

TEST(Config, RepeatedSectionsMerge) {
  const Config config = parse_config("training: {lr: 1}\ndata: {batch_size: 8}\ntraining: {max_epochs: 3}\n", "/");
  EXPECT_EQ(config.options.training.lr, 1);
  EXPECT_EQ(config.options.training.max_epochs, 3);
  EXPECT_THAT(config.warnings, IsEmpty());
}

TEST(Config, RepeatedKeysInAListItemTakeTheLast) {
  const Config config = parse_config("loss: {terms: [{name: dice, name: bce}]}", "/");
  EXPECT_EQ(config.options.loss.terms.at(0).name, "bce");
  EXPECT_THAT(config.warnings, ElementsAre(HasSubstr("`name` is given twice")));
}

TEST(Overrides, ListsNeedNoBrackets) {
  const Options options =
      options_of("", {"model.filters=32,64,128", "data.patch_size=8,16,24", "model.strides=[[1,2,2],[2,2,2]]",
                      "data.synth.count=3", "training.betas=[0.5, 0.9]", "data.images={id}_0.tif,{id}_[12].tif",
                      "data.label=a,b.tif", "loss.terms=[{name: dice, weight: 0.5}, bce]", "inference.window=auto"});
  EXPECT_THAT(options.model.filters, ElementsAre(32, 64, 128));
  EXPECT_EQ(options.data.patch_size, (Extent3{8, 16, 24}));
  EXPECT_THAT(options.model.strides, ElementsAre(Extent3{1, 2, 2}, Extent3{2, 2, 2}));
  EXPECT_EQ(options.data.synth.count, 3);
  EXPECT_THAT(options.training.betas, ElementsAre(0.5, 0.9));
  EXPECT_THAT(options.data.images, ElementsAre("{id}_0.tif", "{id}_[12].tif"));
  EXPECT_EQ(options.data.label, "a,b.tif");
  ASSERT_EQ(options.loss.terms.size(), 2u);
  EXPECT_EQ(options.loss.terms[0].weight, 0.5);
}

TEST(Overrides, ListsOfGroupsNeedNoBracketsEither) {
  const auto terms = [](const std::string& text) { return options_of("", {"loss.terms=" + text}).loss.terms; };
  for (const std::string text : {"dice,bce", "dice, bce", "[dice, bce]", "{name: dice},bce", "- dice\n- bce"}) {
    const auto found = terms(text);
    ASSERT_EQ(found.size(), 2u) << text;
    EXPECT_EQ(found[0].name + found[1].name, "dicebce") << text;
  }
  EXPECT_EQ(terms("{name: bce, weight: 2}").at(0).weight, 2);
  EXPECT_EQ(terms("dice").size(), 1u);
  for (const std::string text : {"", "[]", "~"}) EXPECT_EQ(terms(text).size(), 0u) << text;
}

TEST(Overrides, TheShortFormsHold) {
  EXPECT_THAT(options_of("", {"model.filters=[16]"}).model.filters, ElementsAre(16));
  EXPECT_THAT(options_of("", {"model.filters=16"}).model.filters, ElementsAre(16));
  EXPECT_EQ(options_of("", {"data.patch_size=64"}).data.patch_size, (Extent3{64, 64, 64}));
  EXPECT_THAT(options_of("", {"model.strides=[1,2,2],[2,2,2]"}).model.strides,
              ElementsAre(Extent3{1, 2, 2}, Extent3{2, 2, 2}));
  EXPECT_THAT(options_of("", {"model.strides=[[1,2,2]]"}).model.strides, ElementsAre(Extent3{1, 2, 2}));
  EXPECT_THAT(options_of("model: {strides: [2]}", {"model.strides="}).model.strides, IsEmpty());
  EXPECT_EQ(options_of("data: {label: a.tif}", {"data.label="}).data.label, "");
  EXPECT_THAT(options_of("", {"data.images=[ab]_[cd]"}).data.images, ElementsAre("[ab]_[cd]"));
  EXPECT_THAT(options_of("", {"data.images=[a*.tif, b*.tif]"}).data.images, ElementsAre("a*.tif", "b*.tif"));
  EXPECT_EQ(options_of("", {"training.workers=3"}).data.num_workers, 3);
  EXPECT_EQ(options_of("", {"data.label='x y.tif'"}).data.label, "x y.tif");
  EXPECT_EQ(options_of("data: {batch_size: 4}", {"data.batch_size=5", "data.batch_size=6"}).data.batch_size, 6);
  EXPECT_THAT(error_of("", {"data.batch_size"}), HasSubstr("expected key=value"));
  EXPECT_THAT(error_of("", {"data.batch_size=lots"}), HasSubstr("data.batch_size (command line)"));
}

TEST(Extends, LaterFilesWinAlongTheChain) {
  const Folder folder;
  folder.write("base/root.yaml", "data: {root: volumes, batch_size: 1}\ntraining: {lr: 0.5, max_epochs: 7}\n");
  folder.write("base/middle.yaml", "extends: root.yaml\ntraining: {lr: 0.25, workers: 5}\n");
  const fs::path top = folder.write("top.yaml", "extends: base/middle.yaml\ndata: {num_workers: 6}\n");
  const Config config = load_config(top, {"training.max_epochs=9"});
  EXPECT_EQ(config.options.data.root, (folder.path() / "base/volumes").string());
  EXPECT_EQ(config.options.data.batch_size, 1);
  EXPECT_EQ(config.options.training.lr, 0.25);
  EXPECT_EQ(config.options.data.num_workers, 6);
  EXPECT_EQ(config.options.training.max_epochs, 9);
  EXPECT_EQ(config.file, top);
}

TEST(Extends, AnAliasAboveBeatsTheOptionBelow) {
  const Folder folder;
  folder.write("base.yaml", "data: {num_workers: 6}\n");
  EXPECT_EQ(
      load_config(folder.write("top.yaml", "extends: base.yaml\ntraining: {workers: 2}\n")).options.data.num_workers,
      2);
}

TEST(Extends, KeysTellWhetherTheRecipeItselfHasThem) {
  const Folder folder;
  folder.write("base.yaml", "training: {lr: 1, seed: 1, max_epochs: 2}\n");
  const fs::path top = folder.write("top.yaml", "extends: base.yaml\ntraining: {lr: 2}\n");
  const Config config = load_config(top, {"training.seed=3"});
  std::map<std::string, bool> inherited;
  for (const KeyReport& key : config.keys) inherited[key.key] = key.inherited;
  EXPECT_FALSE(inherited.at("training.lr"));
  EXPECT_FALSE(inherited.at("training.seed"));
  EXPECT_TRUE(inherited.at("training.max_epochs"));
}

TEST(Extends, SeveralFilesLayInOrder) {
  const Folder folder;
  folder.write("a.yaml", "training: {lr: 1, seed: 1}\n");
  folder.write("b.yaml", "training: {lr: 2}\n");
  const Options options = load_config(folder.write("top.yaml", "extends: [a.yaml, b.yaml]\n")).options;
  EXPECT_EQ(options.training.lr, 2);
  EXPECT_EQ(options.training.seed, 1);
  EXPECT_EQ(load_config(folder.path() / "b.yaml", {"extends=a.yaml"}).options.training.seed, 1);
  EXPECT_EQ(load_config(folder.path() / "b.yaml", {"extends=a.yaml"}).options.training.lr, 2);
}

TEST(Extends, CyclesAndMissingFilesAreNamed) {
  const Folder folder;
  folder.write("a.yaml", "extends: b.yaml\n");
  folder.write("b.yaml", "extends: a.yaml\n");
  EXPECT_THAT([&] { load_config(folder.path() / "a.yaml"); },
              testing::ThrowsMessage<Error>(HasSubstr("a.yaml -> b.yaml -> a.yaml")));
  folder.write("c.yaml", "extends: gone.yaml\n");
  EXPECT_THAT(
      [&] { load_config(folder.path() / "c.yaml"); },
      testing::ThrowsMessage<Error>(AllOf(HasSubstr("gone.yaml: no such recipe"), HasSubstr("c.yaml extends it"))));
  EXPECT_THAT([&] { load_config(folder.path() / "none.yaml"); },
              testing::ThrowsMessage<Error>(HasSubstr("none.yaml: no such recipe")));
}

TEST(Paths, StartAtTheRecipe) {
  const Options options = options_of(
      "data: {root: ../d, csv: /t.csv, cache_dir: c, stage_dir: s, images: [i/*.tif], label: l}\nmodel: {weights: "
      "w.pt}");
  EXPECT_EQ(options.data.root, "/d");
  EXPECT_EQ(options.data.csv, "/t.csv");
  EXPECT_EQ(options.data.cache_dir, "/recipes/c");
  EXPECT_EQ(options.data.stage_dir, "/recipes/s");
  EXPECT_EQ(options.model.weights, "/recipes/w.pt");
  EXPECT_EQ(options.model.file, "");
  EXPECT_THAT(options.data.images, ElementsAre("i/*.tif"));  // patterns start at data.root
  EXPECT_EQ(options.data.label, "l");
}

TEST(Paths, OnTheCommandLineMeanTheCurrentFolderWhereTheyAreThere) {
  const Folder folder;
  fs::create_directory(folder.path() / "here");
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  const Options options = options_of("", {"data.root=here", "data.cache_dir=elsewhere"});
  fs::current_path(before);
  EXPECT_EQ(options.data.root, (folder.path() / "here").string());
  EXPECT_EQ(options.data.cache_dir, "/recipes/elsewhere");
}

TEST(Paths, ARecipeOfTheCurrentFolderTakesOverrides) {
  const Folder folder;
  write_file(folder.path() / "recipe.yaml", "data: {root: d}\n");
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  const Options options = load_config("recipe.yaml", {"data.cache_dir=c"}).options;
  fs::current_path(before);
  EXPECT_EQ(options.data.root, (folder.path() / "d").string());
  EXPECT_EQ(options.data.cache_dir, (folder.path() / "c").string());
}

TEST(Paths, PatternsWithoutARootStartInTheRecipeThatHasThem) {
  const Folder folder;
  const fs::path base = folder.write("base/recipe.yaml", "data: {images: [a/*.tif]}\n");
  const fs::path top = folder.write("top/recipe.yaml", "extends: ../base/recipe.yaml\ntraining: {lr: 1}\n");
  const fs::path own = folder.write("own/recipe.yaml", "extends: ../base/recipe.yaml\ndata: {images: [b/*.tif]}\n");
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  EXPECT_EQ(load_config("base/recipe.yaml").options.data.root, (folder.path() / "base").string());
  EXPECT_EQ(load_config(top, {"data.images=[base/*.tif]"}).options.data.root, fs::current_path().string());
  EXPECT_EQ(load_config(top, {"data.images=[elsewhere/*.tif]"}).options.data.root, (folder.path() / "top").string());
  fs::current_path(before);
  EXPECT_EQ(load_config(top).options.data.root, (folder.path() / "base").string());
  EXPECT_EQ(load_config(own).options.data.root, (folder.path() / "own").string());
  EXPECT_EQ(load_config(base, {"data.root=/x"}).options.data.root, "/x");
}

TEST(Variables, ExpandInEveryText) {
  setenv("VOX_TEST_PLACE", "/mnt/fast", 1);
  setenv("VOX_TEST_NUMBER", "12", 1);
  const Options options = options_of(
      "data: {root: '${VOX_TEST_PLACE}/x', images: ['a${VOX_TEST_NUMBER}'], batch_size: '${VOX_TEST_NUMBER}',"
      " preprocess: [{name: clip, from: '${VOX_TEST_PLACE}'}], label: '$${id}'}");
  EXPECT_EQ(options.data.root, "/mnt/fast/x");
  EXPECT_THAT(options.data.images, ElementsAre("a12"));
  EXPECT_EQ(options.data.batch_size, 12);
  EXPECT_EQ(options.data.preprocess.at(0).params.find("from")->scalar, "/mnt/fast");
  EXPECT_EQ(options.data.label, "${id}");
}

TEST(Variables, UnsetOnesAreNamedUnlessTheValueIsReplaced) {
  unsetenv("VOX_TEST_UNSET");
  const std::string yaml = "data:\n  root: ${VOX_TEST_UNSET}/x\n";
  EXPECT_THAT(error_of(yaml), AllOf(HasSubstr("VOX_TEST_UNSET is not set"), HasSubstr("data.root (recipe:2)")));
  EXPECT_EQ(options_of(yaml, {"data.root=/given"}).data.root, "/given");
  EXPECT_THAT(error_of("data: {root: '${OPEN'}"), HasSubstr("without }"));
}

TEST(Config, KeysSayHowEachWasUsed) {
  const Folder folder;
  folder.write("base.yaml", "data: {batch_size: 4}\n");
  const Config config =
      load_config(folder.write("top.yaml", "extends: base.yaml\ntraining: {lr: 1}\n"), {"data.folds=3"});
  std::vector<std::string> keys;
  for (const KeyReport& report : config.keys) {
    EXPECT_EQ(report.use, KeyUse::kUsed);
    keys.push_back(report.key);
  }
  EXPECT_THAT(keys, ElementsAre("extends", "data.batch_size", "training.lr", "data.folds"));
}

}  // namespace
}  // namespace vox
