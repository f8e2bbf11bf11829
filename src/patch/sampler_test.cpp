#include "patch/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "patch/placement.h"

namespace vox {
namespace {

// Volumes whose label is computed from the place: 1 in the cube below 4, 2 in the last x column, 9 (ignored) where
// z >= 10, else 0.
class MadeUpCases : public CaseSource {
 public:
  explicit MadeUpCases(std::vector<Extent3> extents) : extents_(std::move(extents)) {}
  std::string id(int64_t index) const override { return "case" + std::to_string(index); }
  Extent3 extent(int64_t index) const override { return extents_[static_cast<size_t>(index)]; }
  std::vector<int64_t> labels_present(int64_t) const override { return {0, 1, 2}; }
  const std::vector<int64_t>& foreground_labels(int64_t) const override { return foreground_; }
  bool foreground_voxel(int64_t index, int64_t value, uint64_t random, Extent3* voxel) const override {
    if (value == 0) return false;
    const int64_t pick = static_cast<int64_t>(random >> 40);
    const Extent3 e = extent(index);
    *voxel = value == 1 ? Extent3{pick % 4, pick / 4 % 4, pick / 16 % 4} : Extent3{pick % 10, pick / 10 % e.y, e.x - 1};
    return true;
  }
  int64_t labelled_voxels(int64_t, const Box3& box) const override {
    const int64_t end_z = std::min<int64_t>(box.end.z, 10);
    return std::max<int64_t>(end_z - box.begin.z, 0) * box.extent().y * box.extent().x;
  }
  std::optional<Box3> marked_box(int64_t index) const override {
    if (index == 4) return std::nullopt;
    return Box3{{9, 1, 20}, {16, 4, extent(index).x}};
  }

 private:
  std::vector<Extent3> extents_;
  std::vector<int64_t> foreground_{1, 2};
};

SamplerSetup setup_for(const std::string& sampler, int64_t cases = 5) {
  SamplerSetup setup;
  std::vector<Extent3> extents;
  for (int64_t i = 0; i < cases; ++i) {
    extents.push_back({20 + i, 30, 40 - i});
    setup.cases.push_back(i);
  }
  setup.source = std::make_shared<MadeUpCases>(extents);
  setup.data.sampler = sampler;
  setup.data.patch_size = {6, 10, 14};
  return setup;
}

Box3 box_of(const PatchChoice& choice, const SamplerSetup& setup) {
  return {choice.begin, choice.begin + setup.data.patch_size};
}

TEST(Sampler, EverySamplerIsAPureFunctionAndStaysInsideTheVolume) {
  for (const SamplerEntry& entry : all_samplers()) {
    const SamplerSetup setup = setup_for(entry.name);
    const auto sampler = make_sampler(setup), other = make_sampler(setup);
    std::vector<PatchChoice> in_order;
    for (int64_t sample = 0; sample < 300; ++sample) {
      in_order.push_back(sampler->choose(5, sample));
      EXPECT_TRUE(whole(setup.source->extent(in_order.back().case_index)).contains(box_of(in_order.back(), setup)));
    }
    for (int64_t sample = 299; sample >= 0; sample -= 7)
      EXPECT_EQ(other->choose(5, sample), in_order[static_cast<size_t>(sample)]) << entry.name << " " << sample;
    int differ = 0;
    for (int64_t sample = 0; sample < 300; ++sample)
      differ += other->choose(6, sample) != in_order[static_cast<size_t>(sample)];
    EXPECT_EQ(differ > 100, entry.name != "grid") << entry.name;
  }
}

TEST(Sampler, EachPassVisitsEachCaseOnceInAnOrderOfItsOwn) {
  for (const int64_t patches : {1, 3}) {
    SamplerSetup setup = setup_for("uniform", 17);
    setup.data.patches_per_case = patches;
    const auto sampler = make_sampler(setup);
    EXPECT_EQ(sampler->samples_per_pass(), 17 * patches);
    std::set<std::vector<int64_t>> orders;
    for (int64_t pass = 0; pass < 4; ++pass) {
      std::vector<int64_t> order;
      for (int64_t i = 0; i < 17 * patches; ++i) {
        const int64_t visited = sampler->choose(8, pass * 17 * patches + i).case_index;
        if (i % patches == 0) order.push_back(visited);
        EXPECT_EQ(visited, order.back()) << "a run of patches_per_case samples stays with one case";
      }
      EXPECT_EQ(std::set<int64_t>(order.begin(), order.end()).size(), 17u);
      orders.insert(order);
    }
    EXPECT_EQ(orders.size(), 4u);
  }
}

TEST(Sampler, ShufflesOfFourAreAllEquallyLikely) {
  std::map<std::vector<int64_t>, int> seen;
  constexpr int kShuffles = 24 * 200;
  for (uint64_t pass = 0; pass < kShuffles; ++pass) {
    std::vector<int64_t> order;
    for (int64_t i = 0; i < 4; ++i) order.push_back(shuffled(i, 4, Random(1, pass, kCaseStream)));
    ++seen[order];
  }
  ASSERT_EQ(seen.size(), 24u);
  double chi_square = 0;
  for (const auto& [order, count] : seen) chi_square += (count - 200.0) * (count - 200.0) / 200.0;
  EXPECT_LT(chi_square, 23 + 5 * std::sqrt(2 * 23.0));
}

TEST(Sampler, UniformReachesEveryPlaceEquallyOften) {
  SamplerSetup setup = setup_for("uniform", 1);
  setup.data.patch_size = {20, 30, 36};  // room: 0, 0, 4
  const auto sampler = make_sampler(setup);
  std::map<int64_t, int> places;
  for (int64_t sample = 0; sample < 5000; ++sample) ++places[sampler->choose(2, sample).begin.x];
  ASSERT_EQ(places.size(), 5u);
  for (const auto& [x, count] : places) EXPECT_NEAR(count, 1000, 5 * std::sqrt(800.0)) << x;
}

TEST(Sampler, ForegroundFractionAndLabelsAreWithinBinomialBounds) {
  SamplerSetup setup = setup_for("foreground", 1);
  setup.data.patch_size = {1, 1, 1};
  setup.data.foreground_fraction = 0.4;
  const auto sampler = make_sampler(setup);
  constexpr double kSamples = 20000;
  double ones = 0, twos = 0;
  for (int64_t sample = 0; sample < static_cast<int64_t>(kSamples); ++sample) {
    const Extent3 at = sampler->choose(3, sample).begin;
    ones += at.z < 4 && at.y < 4 && at.x < 4;
    twos += at.x == 39 && at.z < 10;
  }
  const double by_chance_one = 64.0 / (20 * 30 * 40), by_chance_two = 0.5 / 40;
  const double one = 0.2 + 0.6 * by_chance_one, two = 0.2 + 0.6 * by_chance_two;
  EXPECT_NEAR(ones, kSamples * one, 5 * std::sqrt(kSamples * one * (1 - one)));
  EXPECT_NEAR(twos, kSamples * two, 5 * std::sqrt(kSamples * two * (1 - two)));
}

TEST(Sampler, BalancedCentresOnEachLabelEquallyOften) {
  SamplerSetup setup = setup_for("balanced", 1);
  setup.data.patch_size = {1, 1, 1};
  const auto sampler = make_sampler(setup);
  double ones = 0, twos = 0;
  for (int64_t sample = 0; sample < 9000; ++sample) {
    const Extent3 at = sampler->choose(3, sample).begin;
    ones += at.z < 4 && at.y < 4 && at.x < 4;
    twos += at.x == 39 && at.z < 10;
  }
  const double one = 1.0 / 3 * (1 + 64.0 / 24000), two = 1.0 / 3 * (1 + 0.5 / 40);
  EXPECT_NEAR(ones, 9000 * one, 5 * std::sqrt(9000 * one * (1 - one)));
  EXPECT_NEAR(twos, 9000 * two, 5 * std::sqrt(9000 * two * (1 - two)));
}

TEST(Sampler, LabelledPatchesReachTheMinimumOrAreTheBestOfTheirTries) {
  SamplerSetup setup = setup_for("labelled");
  setup.data.minimum_labelled = 0.5;
  const auto sampler = make_sampler(setup);
  int reached = 0;
  for (int64_t sample = 0; sample < 500; ++sample) {
    const PatchChoice choice = sampler->choose(4, sample);
    const double voxels = static_cast<double>(setup.data.patch_size.voxels());
    reached +=
        static_cast<double>(setup.source->labelled_voxels(choice.case_index, box_of(choice, setup))) / voxels >= 0.5;
  }
  // A uniform patch reaches it with probability 8/15 to 8/19; ten tries miss at most once in 237 samples.
  EXPECT_GT(reached, 480);
}

TEST(Sampler, MaskPutsThePatchAboutTheMiddleOfWhatIsMarkedButInsideTheVolume) {
  SamplerSetup setup = setup_for("mask");
  setup.data.patch_size = {8, 10, 20};
  const auto sampler = make_sampler(setup);
  std::set<int64_t> places_of_the_unmarked;
  for (int64_t sample = 0; sample < 200; ++sample) {
    const PatchChoice choice = sampler->choose(3, sample);
    if (choice.case_index == 4) {
      places_of_the_unmarked.insert(choice.begin.x);
      continue;
    }
    const int64_t x = setup.source->extent(choice.case_index).x;  // the box is 9:16, 1:4, 20:x
    EXPECT_EQ(choice.begin, (Extent3{8, 0, x - 20})) << choice.case_index;
  }
  EXPECT_GT(places_of_the_unmarked.size(), 10u);
}

TEST(Sampler, WhatIsLongerThanThePatchIsSeenEverywhereAndOftenAtItsEnds) {
  SamplerSetup setup = setup_for("mask", 1);
  setup.data.patch_size = {4, 10, 14};
  const auto sampler = make_sampler(setup);
  std::map<int64_t, int> begins_z, begins_x;
  const int kSamples = 2800;
  for (int64_t sample = 0; sample < kSamples; ++sample) {
    const Extent3 begin = sampler->choose(3, sample).begin;
    ++begins_z[begin.z];
    ++begins_x[begin.x];
  }
  // The box is 9:16, 1:4, 20:40. Along z the middle is drawn from seven voxels: three, one, one and two of them lead to
  // a patch that begins at 9, 10, 11 and 12.
  EXPECT_EQ(begins_z.size(), 4u);
  for (const auto& [begin, sevenths] : std::map<int64_t, int>{{9, 3}, {10, 1}, {11, 1}, {12, 2}})
    EXPECT_NEAR(begins_z[begin], kSamples * sevenths / 7, 5 * std::sqrt(kSamples / 4.0)) << begin;
  EXPECT_EQ(begins_x.begin()->first, 20);
  EXPECT_EQ(begins_x.rbegin()->first, 26);
}

TEST(Sampler, GridCoversEveryVoxelOfEveryCaseInOrder) {
  const SamplerSetup setup = setup_for("grid", 3);
  const auto sampler = make_sampler(setup);
  std::vector<std::vector<int>> covered;
  for (const int64_t index : setup.cases)
    covered.emplace_back(static_cast<size_t>(setup.source->extent(index).voxels()));
  int64_t last_case = 0;
  for (int64_t sample = 0; sample < sampler->samples_per_pass(); ++sample) {
    const PatchChoice choice = sampler->choose(0, sample);
    EXPECT_GE(choice.case_index, last_case);
    last_case = choice.case_index;
    const Extent3 e = setup.source->extent(choice.case_index);
    const Box3 box = box_of(choice, setup);
    for (int64_t z = box.begin.z; z < box.end.z; ++z)
      for (int64_t y = box.begin.y; y < box.end.y; ++y)
        for (int64_t x = box.begin.x; x < box.end.x; ++x)
          covered[static_cast<size_t>(choice.case_index)][static_cast<size_t>((z * e.y + y) * e.x + x)] = 1;
  }
  for (const std::vector<int>& one : covered) EXPECT_EQ(std::count(one.begin(), one.end(), 0), 0);
  EXPECT_EQ(sampler->choose(0, sampler->samples_per_pass()), sampler->choose(0, 0));
}

TEST(Sampler, APatchLargerThanTheVolumeIsCentredWherePaddedAndAnErrorOtherwise) {
  for (const SamplerEntry& entry : all_samplers()) {
    SamplerSetup setup = setup_for(entry.name, 2);
    setup.data.patch_size = {26, 10, 14};
    const PatchChoice choice = make_sampler(setup)->choose(1, 0);
    const int64_t spare = 26 - setup.source->extent(choice.case_index).z;
    EXPECT_EQ(choice.begin.z, -((spare + 1) / 2)) << entry.name;
    setup.data.padding = "none";
    try {
      make_sampler(setup);
      FAIL() << entry.name;
    } catch (const Error& error) {
      const std::string said = error.what();
      for (const char* part : {"case0", "26x10x14", "20x30x40", "data.padding"})
        EXPECT_NE(said.find(part), std::string::npos) << said;
    }
  }
}

TEST(Sampler, UnknownNamesAndEmptySplitsAreErrors) {
  EXPECT_THROW(make_sampler(setup_for("unifrom")), Error);
  EXPECT_THROW(make_sampler(setup_for("uniform", 0)), Error);
}

}  // namespace
}  // namespace vox
