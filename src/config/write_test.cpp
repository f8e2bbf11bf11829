// Writing and reading back, with every field of every option drawn at random.
#include "config/write.h"

#include <cmath>
#include <random>

#include "base/drawn_seed.h"
#include "base/text.h"
#include "config/schema.h"
#include "config/test_support.h"

namespace vox {
namespace {

class Randomizer final : public Visitor {
 public:
  explicit Randomizer(uint64_t seed) : engine_(seed) {}

 protected:
  void visit(const std::string&, const FieldRef& field, const Spec& spec) override {
    std::visit([&](auto* value) { draw(*value, spec); }, field);
  }

 private:
  int64_t below(int64_t count) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(count)); }
  double unit() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }

  void draw(bool& value, const Spec&) { value = below(2) == 0; }
  void draw(int64_t& value, const Spec& spec) {
    if (spec.named && below(4) == 0) {
      value = spec.named->value;
      return;
    }
    const double low = std::max(spec.min, -1e15), high = std::min(spec.max, 1e15);
    value = static_cast<int64_t>(std::round(low + unit() * (high - low)));
  }
  void draw(double& value, const Spec& spec) {
    const double low = std::max(spec.min, -1e3), high = std::min(spec.max, 1e3);
    value = high - unit() * (high - low);
  }
  void draw(std::string& value, const Spec& spec) {
    static const std::vector<std::string> kOdd{
        "",          "null", "~",         "yes",        "a: b",  "- x",  "#c", "${HOME}", "$x",
        "\"q\" 'r'", "\\",   "tab\tnl\n", "{id}_*.tif", "[1,2]", "\x01", "--", " s ",     "\xc3\xa9",
        "1e-5",      "&a",   "*a",        "!t",         "%d",    "@",    "`",  "a,b",     "$${x"};
    if (!spec.choices.empty())
      value = spec.choices[static_cast<size_t>(below(static_cast<int64_t>(spec.choices.size())))];
    else if (spec.form == Form::kPath)
      value = below(2) ? "" : "/data/some folder/" + std::to_string(below(99)) + ": #x";
    else if (spec.form == Form::kIterations)
      value = std::vector<std::string>{"auto", "12", "6h"}[static_cast<size_t>(below(3))];
    else
      value = kOdd[static_cast<size_t>(below(static_cast<int64_t>(kOdd.size())))];
  }
  void draw(Extent3& value, const Spec& spec) {
    for (int axis = 0; axis < 3; ++axis) draw(value[axis], spec);
  }
  template <class T>
  void draw(std::vector<T>& values, const Spec& spec) {
    const size_t most = std::min<size_t>(spec.max_items, spec.min_items + 3);
    values.resize(spec.form == Form::kRange ? 2
                                            : spec.min_items + static_cast<size_t>(below(most - spec.min_items + 1)));
    for (T& value : values) draw(value, spec);
    if constexpr (std::is_same_v<T, double>)
      if (spec.form == Form::kRange) std::sort(values.begin(), values.end());
  }
  void draw(StructList& list, const Spec&) {
    list.reset(static_cast<size_t>(below(3)));
    for (size_t i = 0; i < list.size(); ++i) {
      list.describe(i, *this);
      if (Tree* params = list.params(i)) *params = random_map(2);
    }
  }
  Tree random_map(int depth) {
    Tree map;
    map.kind = Tree::Kind::kMap;
    for (int64_t i = below(4); i > 0; --i) map.members.emplace_back("p" + std::to_string(i), random_tree(depth));
    return map;
  }
  Tree random_tree(int depth) {
    const int64_t kind = depth == 0 ? below(2) : below(4);
    if (kind == 0) return {};
    if (kind == 2) return random_map(depth - 1);
    if (kind == 3) return list_tree({random_tree(depth - 1), random_tree(depth - 1)});
    std::string text;
    draw(text, Spec{});
    return scalar_tree(text);
  }

  std::mt19937_64 engine_;
};

Options random_options(uint64_t seed) {
  Options options;
  Randomizer randomizer(seed);
  options.describe(randomizer);
  for (LossTerm& term : options.loss.terms) term.name += "loss";  // a name is never empty
  for (PreprocessStep& step : options.data.preprocess) step.name += "step";
  for (PostOptions& step : options.inference.postprocess) step.name += "step";
  for (TargetOptions& target : options.loss.targets) target.name += "target";
  return options;
}

TEST(Write, ReadingBackGivesTheSameOptions) {
  const uint64_t first = drawn_seed();
  for (uint64_t seed = first; seed < first + 300; ++seed) {
    const Options options = random_options(seed);
    const std::string yaml = to_yaml(options);
    ASSERT_NO_THROW(options_of(yaml)) << "seed " << seed << "\n" << yaml;
    const Options back = options_of(yaml);
    ASSERT_TRUE(back == options) << "seed " << seed << "\n" << yaml << "\n-- back --\n" << to_yaml(back);
    ASSERT_TRUE(differences(options, back).empty());
  }
}

TEST(Write, DefaultsReadBackWithoutAWarning) {
  const Config config = parse_config(to_yaml({}), "/");
  EXPECT_EQ(config.options, Options{});
  EXPECT_TRUE(config.warnings.empty());
  EXPECT_EQ(config.keys.size(), Schema::get().entries().size());
}

TEST(Differences, NameEachChangedOptionOnce) {
  Options before, after;
  after.training.lr = 0.5;
  after.model.filters = {8, 16};
  after.data.num_workers = 3;
  after.loss.terms.resize(1);
  after.loss.terms[0].name = "dice";
  const auto found = differences(before, after);
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[0].key, "model.filters");
  EXPECT_EQ(found[0].before, "[]");
  EXPECT_EQ(found[0].after, "8,16");
  EXPECT_EQ(found[1].key, "data.num_workers");
  EXPECT_EQ(found[1].before, "auto");
  EXPECT_EQ(found[2].key, "loss.terms");
  EXPECT_EQ(found[2].after, "{name: dice, weight: 1, every: auto, start_step: 0, deep_supervision: true}");
  EXPECT_EQ(found[3].after, "0.5");
  EXPECT_TRUE(differences(before, before).empty());
}

TEST(Rows, EveryOptionHasAMeaningAndItsDefaultIsInRange) {
  for (const OptionRow& row : option_rows()) {
    EXPECT_FALSE(row.meaning.empty()) << row.key;
    EXPECT_FALSE(row.type.empty()) << row.key;
    EXPECT_FALSE(ends_with(row.meaning, ".")) << row.key;
    if (row.key.find("[]") != std::string::npos || row.default_value.empty()) continue;
    EXPECT_EQ(options_of("", {row.key + "=" + row.default_value}), Options{}) << row.key << "=" << row.default_value;
  }
}

TEST(Rows, DefaultsAreThoseOfTheFields) {
  EXPECT_EQ(options_of(to_yaml({})), Options{});
  const auto rows = option_rows();
  const auto row =
      std::find_if(rows.begin(), rows.end(), [](const auto& r) { return r.key == "data.prefetch_factor"; });
  ASSERT_NE(row, rows.end());
  EXPECT_EQ(row->type, "whole number");
  EXPECT_EQ(row->range, "1 to 1024");
  EXPECT_EQ(row->unit, "batches");
}

}  // namespace
}  // namespace vox
