// Every type of option: what it takes, and the sentence for what it does not.
#include "config/params.h"
#include "config/test_support.h"

namespace vox {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Read, BoolsTakeTheWordsOfYaml) {
  EXPECT_TRUE(options_of("training: {deterministic: true}").training.deterministic);
  EXPECT_TRUE(options_of("training: {deterministic: Yes}").training.deterministic);
  EXPECT_FALSE(options_of("monitor: {report: off}").monitor.report);
  EXPECT_THAT(error_of("monitor: {report: maybe}"),
              AllOf(HasSubstr("monitor.report (recipe:1)"), HasSubstr("true or false"), HasSubstr("\"maybe\"")));
}

TEST(Read, AnchorsThatRepeatOneAnotherAreRefused) {
  std::string recipe = "a: &a0 [1, 1, 1, 1, 1, 1, 1, 1]\n";
  for (int i = 0; i < 7; ++i) {
    const std::string name = concat("*a", i);
    recipe += concat("b", i, ": &a", i + 1, " [", name, ", ", name, ", ", name, ", ", name, ", ", name, ", ", name,
                     ", ", name, ", ", name, "]\n");
  }
  EXPECT_THAT(error_of(recipe), HasSubstr("anchors"));
}

TEST(Read, WholeNumbersAreChecked) {
  EXPECT_EQ(options_of("training: {seed: 9223372036854775807}").training.seed, 9223372036854775807);
  EXPECT_THAT(error_of("training:\n  max_epochs: 0"),
              AllOf(HasSubstr("training.max_epochs (recipe:2)"), HasSubstr("from 1 to"), HasSubstr("got \"0\"")));
  EXPECT_THAT(error_of("training: {max_epochs: 2.5}"), HasSubstr("a whole number"));
  EXPECT_THAT(error_of("training: {max_epochs: 3x}"), HasSubstr("got \"3x\""));
  EXPECT_THAT(error_of("training: {max_epochs: [1, 2]}"), HasSubstr("got the list 1,2"));
  EXPECT_THAT(error_of("training: {max_epochs: {a: 1}}"), HasSubstr("got the group {a: 1}"));
  EXPECT_THAT(error_of("training: {max_epochs: }"), HasSubstr("got nothing"));
  EXPECT_THAT(error_of("training: {seed: 9223372036854775808}"), HasSubstr("training.seed"));
}

TEST(Read, NumbersAreFiniteAndInRange) {
  EXPECT_DOUBLE_EQ(options_of("training: {lr: 3e-4}").training.lr, 3e-4);
  EXPECT_THAT(error_of("training: {lr: 0}"), HasSubstr("a number above 0"));
  EXPECT_THAT(error_of("training: {lr: inf}"), HasSubstr("a number"));
  EXPECT_THAT(error_of("inference: {overlap: 1.5}"), HasSubstr("from 0 to 0.95"));
}

TEST(Read, ChoicesNameTheNearest) {
  EXPECT_EQ(options_of("training: {precision: 32}").training.precision, "32");
  EXPECT_THAT(error_of("training: {precision: bf16-mixd}"),
              AllOf(HasSubstr("one of 32, tf32, 16-mixed, bf16-mixed"), HasSubstr("did you mean \"bf16-mixed\"?")));
}

TEST(Read, AWordStandsForAutomatic) {
  const Options options = options_of(
      "system: {num_gpus: auto, num_cpus: auto, compute_threads: auto}\n"
      "data: {num_workers: auto, ignore_label: none}\ninference: {window: auto}\nmodel: {in_channels: auto}",
      {});
  EXPECT_EQ(options, Options{});
  EXPECT_EQ(options_of("data: {num_workers: -1}").data.num_workers, -1);
  EXPECT_EQ(options_of("data: {num_workers: 4}").data.num_workers, 4);
  EXPECT_THAT(error_of("data: {num_workers: -2}"), HasSubstr("or auto"));
  EXPECT_THAT(error_of("data: {num_workers: many}"), HasSubstr("or auto"));
}

TEST(Read, ExtentsTakeOneNumberOrThree) {
  EXPECT_EQ(options_of("data: {patch_size: 96}").data.patch_size, (Extent3{96, 96, 96}));
  EXPECT_EQ(options_of("data: {patch_size: [72, 136, 136]}").data.patch_size, (Extent3{72, 136, 136}));
  EXPECT_THAT(error_of("data: {patch_size: [72, 136]}"), HasSubstr("three whole numbers z,y,x"));
  EXPECT_THAT(error_of("data: {patch_size: [72, 136, 0]}"), HasSubstr("data.patch_size"));
}

TEST(Read, ListsTakeOneValueToo) {
  EXPECT_THAT(options_of("model: {filters: 16}").model.filters, ElementsAre(16));
  EXPECT_THAT(options_of("model: {filters: [8, 16]}").model.filters, ElementsAre(8, 16));
  EXPECT_THAT(options_of("model: {strides: [[1, 2, 2], 2]}").model.strides,
              ElementsAre(Extent3{1, 2, 2}, Extent3{2, 2, 2}));
  EXPECT_THAT(options_of("data: {images: ct.nii}").data.images, ElementsAre("ct.nii"));
  EXPECT_THAT(error_of("augmentation: {flip: {axes: []}}"), HasSubstr("1 to 3 of them"));
  EXPECT_THAT(error_of("model: {filters: [8, big]}"), HasSubstr("a list of whole numbers from 1 to 65536"));
  EXPECT_THAT(error_of("training: {betas: 0.9}"), HasSubstr("exactly 2"));
}

TEST(Read, RangesAscend) {
  EXPECT_THAT(options_of("augmentation: {rotate: {degrees: [-10, 20]}}").augmentation.rotate.degrees,
              ElementsAre(-10, 20));
  EXPECT_THAT(error_of("augmentation: {rotate: {degrees: [20, -10]}}"), HasSubstr("two ascending numbers"));
  EXPECT_THAT(error_of("augmentation: {rotate: {degrees: 20}}"), HasSubstr("two ascending numbers"));
  EXPECT_THAT(error_of("augmentation: {rotate: {degrees: [-200, 20]}}"), HasSubstr("from -180 to 180"));
}

TEST(Read, IterationsAreANumberAutoOrADuration) {
  for (const std::string good : {"250", "auto", "6h", "90m", "30s", "1.5h", "2d"})
    EXPECT_EQ(options_of("training: {iterations_per_epoch: " + good + "}").training.iterations_per_epoch, good);
  for (const std::string bad : {"0", "-3", "6 hours", "h", "2.5", "0h", "nanh", "9223372036854775807"})
    EXPECT_THAT(error_of("training: {iterations_per_epoch: " + bad + "}"), HasSubstr("a duration such as 6h")) << bad;
}

TEST(Read, StructListsKeepWhatTheyDoNotKnow) {
  const Options options = options_of("loss: {terms: [dice, {name: bce, weight: 2, every: 4, smooth: [1, 2]}]}");
  ASSERT_EQ(options.loss.terms.size(), 2u);
  EXPECT_EQ(options.loss.terms[0].name, "dice");
  EXPECT_EQ(options.loss.terms[1].weight, 2);
  EXPECT_EQ(options.loss.terms[1].every, 4);
  ASSERT_EQ(options.loss.terms[1].params.members.size(), 1u);
  EXPECT_EQ(options.loss.terms[1].params.members[0].first, "smooth");
  EXPECT_THAT(error_of("loss: {terms: [{name: bce, weight: -2}]}"), HasSubstr("loss.terms[0].weight (recipe:1)"));
  EXPECT_THAT(error_of("loss: {terms: [{weight: 2}]}"), HasSubstr("expected a `name`"));
  EXPECT_THAT(error_of("loss: {terms: dice}"), HasSubstr("expected a list of groups"));
  EXPECT_THAT(error_of("data: {cases: [{id: a, lable: b.tif}]}"),
              AllOf(HasSubstr("data.cases[0].lable"), HasSubstr("did you mean \"label\"?")));
}

struct ClipOptions {
  double low = 0, high = 1;
  void describe(Visitor& v) {
    v.field("low", low, {.meaning = "Values below become this"});
    v.field("high", high, {.meaning = "Values above become this", .max = 10});
  }
};

TEST(Params, AnEntryReadsItsOwnOptions) {
  const auto parse = [](const std::string& yaml) {
    return parse_params<ClipOptions>(options_of(yaml).data.preprocess.at(0).params, "data.preprocess: clip");
  };
  EXPECT_EQ(parse("data: {preprocess: [{name: clip, high: 3}]}").high, 3);
  EXPECT_EQ(parse("data: {preprocess: [clip]}").low, 0);
  EXPECT_THAT([&] { parse("data: {preprocess: [{name: clip, hihg: 3}]}"); },
              testing::ThrowsMessage<Error>(
                  AllOf(HasSubstr("data.preprocess: clip: hihg (recipe:1)"), HasSubstr("did you mean \"high\"?"))));
  EXPECT_THAT([&] { parse("data: {preprocess: [{name: clip, high: 30}]}"); },
              testing::ThrowsMessage<Error>(HasSubstr("a number up to 10, got \"30\"")));
  EXPECT_EQ(rows_of<ClipOptions>().size(), 2u);
}

}  // namespace
}  // namespace vox
