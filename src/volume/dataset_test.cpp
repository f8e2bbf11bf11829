#include "volume/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "volume/csv.h"
#include "volume/glob.h"
#include "volume/split.h"
#include "volume/test_volumes.h"

namespace vox {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class DatasetTest : public testing::Test {
 protected:
  DataOptions options() const {
    DataOptions data;
    data.root = folder_.path().string();
    data.split = "none";
    return data;
  }
  void touch(const std::vector<std::string>& names) {
    for (const std::string& name : names) write_file(folder_ / name, "x");
  }
  std::vector<std::string> ids(const DataOptions& data) {
    std::vector<std::string> found;
    for (const Case& item : make_dataset(data, 0, 0).cases) found.push_back(item.id);
    return found;
  }
  std::string error(const DataOptions& data) {
    return error_of([&] { make_dataset(data, 0, 0); });
  }
  TemporaryFolder folder_;
};

TEST_F(DatasetTest, GlobNamesCasesByWhatTheStarMatchesInNaturalOrder) {
  touch({"images/s10.tif", "images/s9.tif", "images/.hidden.tif", "labels/s9.tif", "labels/s10.tif"});
  DataOptions data = options();
  data.images = {"images/*.tif"};
  data.label = "labels/{id}.tif";
  EXPECT_THAT(ids(data), ElementsAre("s9", "s10"));
  EXPECT_EQ(make_dataset(data, 0, 0).cases[1].label, folder_ / "labels/s10.tif");
}

TEST_F(DatasetTest, TheRootIsANameWhateverItsLetters) {
  touch({"set[1]:{a}*/images/s1.tif", "set[1]:{a}*/images/s[2].tif", "set[1]:{a}*/labels/s1.tif",
         "set[1]:{a}*/labels/s[2].tif", "set[1]:{a}*/v.h5", "set1/images/s3.tif"});
  DataOptions data = options();
  data.root = folder_ / "set[1]:{a}*";
  data.images = {"images/*.tif"};
  data.label = "labels/{id}.tif";
  EXPECT_THAT(ids(data), ElementsAre("s1", "s[2]"));
  EXPECT_EQ(make_dataset(data, 0, 0).cases[1].label, data.root + "/labels/s[2].tif");
  data.images = {"images/s1.tif"};
  data.label = "../*/labels/{id}.t?f";
  EXPECT_EQ(make_dataset(data, 0, 0).cases[0].label, data.root + "/labels/s1.tif");
  data.label = "";
  data.images = {"*.h5:group/volume"};
  EXPECT_EQ(make_dataset(data, 0, 0).cases[0].images[0], data.root + "/v.h5:group/volume");
  data.images = {"pictures/*.tif"};
  EXPECT_THAT(error(data), HasSubstr("looks in " + data.root + "/pictures"));
}

TEST_F(DatasetTest, ChannelsComeFromOnePatternEach) {
  touch({"images/a_0000.nii.gz", "images/a_0001.nii.gz", "images/b_0000.nii.gz", "images/b_0001.nii.gz"});
  DataOptions data = options();
  data.images = {"images/{id}_0000.nii.gz", "images/{id}_0001.nii.gz"};
  const Dataset dataset = make_dataset(data, 0, 0);
  ASSERT_EQ(dataset.cases.size(), 2u);
  EXPECT_THAT(dataset.cases[1].images, ElementsAre(folder_ / "images/b_0000.nii.gz", folder_ / "images/b_0001.nii.gz"));
}

TEST_F(DatasetTest, FoldersPairFilesOfOneStemWhateverTheirSuffix) {
  touch({"images/a.nii.gz", "images/b.tif", "images/readme.txt", "labels/a.npy", "labels/b.npy"});
  DataOptions data = options();
  data.images = {"images"};
  data.label = "labels";
  EXPECT_THAT(ids(data), ElementsAre("a", "b"));
  EXPECT_EQ(make_dataset(data, 0, 0).cases[0].label, folder_ / "labels/a.npy");
}

TEST_F(DatasetTest, FolderNamesCanBeIds) {
  touch({"p1/image.npy", "p2/image.npy", "p1/image_mask.npy"});
  DataOptions data = options();
  data.images = {"*/image.npy"};
  EXPECT_THAT(ids(data), ElementsAre("p1", "p2"));
  data.images = {"**/*.npy"};
  EXPECT_THAT(error(data), AllOf(HasSubstr("p1/image.npy"), HasSubstr("p2/image.npy")));
}

TEST_F(DatasetTest, TableFillsTemplatesAndGroups) {
  touch({"data/7/a.tif", "data/8/b.tif"});
  write_file(folder_ / "train.csv", "\xef\xbb\xbfid,scroll_id,note\r\na,7,\"x, \"\"y\"\"\"\r\nb,8,\r\n");
  DataOptions data = options();
  data.csv = "train.csv";
  data.group_column = "scroll_id";
  data.images = {"data/{scroll_id}/{id}.tif"};
  const Dataset dataset = make_dataset(data, 0, 0);
  ASSERT_EQ(dataset.cases.size(), 2u);
  EXPECT_EQ(dataset.cases[0].group, "7");
  EXPECT_EQ(dataset.cases[1].images[0], folder_ / "data/8/b.tif");
  EXPECT_EQ(read_table(folder_ / "train.csv").rows[0][2], "x, \"y\"");
  data.group_column = "scrol_id";
  EXPECT_THAT(error(data), AllOf(HasSubstr("train.csv"), HasSubstr("did you mean \"scroll_id\"")));
}

TEST_F(DatasetTest, TableOfOtherDataIsFoundBesideThem) {
  touch({"a.npy", "b.npy"});
  write_file(folder_ / "train.csv", "id\na\nb\n");
  DataOptions data = options();
  data.csv = folder_ / "recipes/train.csv";  // as a recipe elsewhere says it, resolved
  data.images = {"{id}.npy"};
  EXPECT_THAT(ids(data), ElementsAre("a", "b"));
  data.csv = folder_ / "recipes/tests.csv";
  EXPECT_THAT(error(data), AllOf(HasSubstr("tests.csv in " + folder_.path().string()), HasSubstr("recipes/tests.csv"),
                                 HasSubstr("is data.root right?")));
}

TEST_F(DatasetTest, FoldersBelowTheRootSayTheSplit) {
  touch({"train-pats/p1.npy", "validation_images/p2.npy", "Test/deep/p3.npy", "val/p4.npy"});
  DataOptions data = options();
  data.images = {"**/{id}.npy"};
  data.split = "folder";
  const Dataset dataset = make_dataset(data, 0, 0);
  EXPECT_THAT(dataset.train, ElementsAre(0));
  EXPECT_THAT(dataset.validation, ElementsAre(1, 3));
  EXPECT_THAT(dataset.test, ElementsAre(2));
  touch({"tests_of_mine/p5.npy"});
  EXPECT_THAT(error(data), AllOf(HasSubstr("case p5"), HasSubstr("tests_of_mine/p5.npy")));
}

TEST_F(DatasetTest, TableColumnSplitsInManyWords) {
  touch({"a.npy", "b.npy", "c.npy", "d.npy"});
  write_file(folder_ / "t.csv", "id,split,who\na,train,1\nb,Validation,2\nc,val,2\nd,test,3\n");
  DataOptions data = options();
  data.csv = "t.csv";
  data.images = {"{id}.npy"};
  data.split = "column";
  const Dataset dataset = make_dataset(data, 0, 0);
  EXPECT_THAT(dataset.train, ElementsAre(0));
  EXPECT_THAT(dataset.validation, ElementsAre(1, 2));
  EXPECT_THAT(dataset.test, ElementsAre(3));
  write_file(folder_ / "t.csv", "id,split,who\na,train,1\nb,val,1\nc,val,2\nd,holdout,3\n");
  EXPECT_THAT(error(data), AllOf(HasSubstr("case d"), HasSubstr("holdout")));
  write_file(folder_ / "t.csv", "id,split,who\na,train,1\nb,val,1\nc,val,2\nd,test,3\n");
  data.group_column = "who";
  EXPECT_THAT(error(data), AllOf(HasSubstr("group \"1\""), HasSubstr("case a"), HasSubstr("case b")));
}

TEST_F(DatasetTest, ExplicitListsNameTheNearestIdWhenWrong) {
  touch({"scan1.npy", "scan2.npy", "scan3.npy"});
  DataOptions data = options();
  data.images = {"*.npy"};
  data.split = "explicit";
  data.validation = {"scan2"};
  EXPECT_THAT(make_dataset(data, 0, 0).train, ElementsAre(0, 2));
  data.train = {"scan1"};
  EXPECT_THAT(make_dataset(data, 0, 0).train, ElementsAre(0));
  data.test = {"scna3"};
  EXPECT_THAT(error(data), AllOf(HasSubstr("scna3"), HasSubstr("did you mean \"scan3\"")));
  data.test = {"scan2"};
  EXPECT_THAT(error(data), AllOf(HasSubstr("scan2"), HasSubstr("data.test"), HasSubstr("validation")));
}

TEST_F(DatasetTest, ListedCasesKeepTheirIdsGroupsAndSplits) {
  touch({"x.npy", "y.npy", "z.npy"});
  DataOptions data = options();
  data.split = "kfold";
  data.folds = 2;
  for (const char* name : {"x", "y", "z"}) {
    CaseEntry entry;
    entry.images = {std::string(name) + ".npy"};
    entry.split = *name == 'z' ? "test" : "";
    data.cases.push_back(entry);
  }
  const Dataset dataset = make_dataset(data, 0, 0);
  EXPECT_THAT(dataset.test, ElementsAre(2));
  EXPECT_EQ(dataset.train.size(), 1u);
  EXPECT_EQ(dataset.validation.size(), 1u);
}

TEST_F(DatasetTest, ProblemsAreNamed) {
  touch({"images/a.tif", "images/a.npy", "labels/b.tif"});
  DataOptions data = options();
  EXPECT_THAT(error(data), HasSubstr("data.images"));
  data.images = {"images/*.png"};
  EXPECT_THAT(error(data), AllOf(HasSubstr("images/*.png"), HasSubstr(folder_ / "images"), HasSubstr("a.tif")));
  data.images = {"imags/*.tif"};
  EXPECT_THAT(error(data), AllOf(HasSubstr("no such folder"), HasSubstr(folder_ / "imags")));
  data.images = {"images"};
  EXPECT_THAT(error(data), AllOf(HasSubstr("two cases"), HasSubstr("a.tif"), HasSubstr("a.npy")));
  data.images = {"images/*.tif"};
  data.label = "labels/{id}.tif";
  EXPECT_THAT(error(data), AllOf(HasSubstr("case a"), HasSubstr("data.label"), HasSubstr(folder_ / "labels/a.tif")));
  data.label = "labels/*.tif";
  EXPECT_THAT(error(data), AllOf(HasSubstr("case a"), HasSubstr("labels/*.tif")));
  data.on_bad_case = "skip";
  EXPECT_EQ(error(data), "") << "left for the store to skip";
  data.label = "labels/{patient}.tif";
  EXPECT_THAT(error(data), AllOf(HasSubstr("{patient}"), HasSubstr("data.csv")));
}

std::vector<Case> random_cases(uint64_t seed, int64_t* groups) {
  Random random(seed, 0, 3);
  *groups = 5 + random.below(30);
  std::vector<Case> cases;
  for (int64_t i = 0; i < 20 + random.below(80); ++i) {
    Case item;
    item.id = "c" + std::to_string(i);
    item.group = "g" + std::to_string(random.below(*groups));
    cases.push_back(item);
  }
  return cases;
}

TEST(Split, NoGroupLeaksAndEveryCaseIsHeldOutOnce) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    int64_t groups = 0;
    Dataset dataset;
    dataset.cases = random_cases(seed, &groups);
    DataOptions data;
    data.folds = 4;
    std::vector<int> held_out(dataset.cases.size(), 0);
    for (int64_t fold = 0; fold < data.folds; ++fold) {
      split_cases(dataset, data, fold, seed);
      std::set<std::string> train_groups;
      for (const int64_t i : dataset.train) train_groups.insert(dataset.cases[static_cast<size_t>(i)].group);
      for (const int64_t i : dataset.validation) {
        ASSERT_EQ(train_groups.count(dataset.cases[static_cast<size_t>(i)].group), 0u) << "seed " << seed;
        ++held_out[static_cast<size_t>(i)];
      }
      ASSERT_EQ(dataset.train.size() + dataset.validation.size(), dataset.cases.size());
    }
    ASSERT_THAT(held_out, testing::Each(1));
  }
}

TEST(Split, FoldsAreBalancedToWithinTheLargestGroup) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    int64_t groups = 0;
    const std::vector<Case> cases = random_cases(seed, &groups);
    std::map<std::string, int64_t> sizes;
    for (const Case& item : cases) ++sizes[item.group];
    int64_t largest = 0;
    for (const auto& [name, size] : sizes) largest = std::max(largest, size);
    std::vector<int64_t> filled(4, 0);
    for (const int64_t fold : assign_folds(cases, 4, seed)) ++filled[static_cast<size_t>(fold)];
    const auto [low, high] = std::minmax_element(filled.begin(), filled.end());
    EXPECT_LE(*high - *low, largest) << "seed " << seed;
  }
}

TEST(Split, DependsOnNamesAndSeedAlone) {
  int64_t groups = 0;
  std::vector<Case> cases = random_cases(3, &groups);
  const std::vector<int64_t> folds = assign_folds(cases, 5, 11);
  std::map<std::string, int64_t> fold_of;
  for (size_t i = 0; i < cases.size(); ++i) fold_of[cases[i].id] = folds[i];
  std::reverse(cases.begin(), cases.end());
  const std::vector<int64_t> reversed = assign_folds(cases, 5, 11);
  for (size_t i = 0; i < cases.size(); ++i) EXPECT_EQ(reversed[i], fold_of[cases[i].id]);
  EXPECT_NE(assign_folds(cases, 5, 12), reversed);
}

TEST(Split, CasesThatSayTheirFoldAreInIt) {
  int64_t groups = 0;
  std::vector<Case> cases = random_cases(5, &groups);
  for (size_t i = 0; i < cases.size(); i += 2) {
    cases[i].group = cases[i].id;
    cases[i].fold = static_cast<int64_t>((i / 2 * 3 + 1) % 4);
  }
  const std::vector<int64_t> folds = assign_folds(cases, 4, 1);
  for (size_t i = 0; i < cases.size(); i += 2) EXPECT_EQ(folds[i], cases[i].fold);
  std::map<std::string, std::set<int64_t>> drawn;
  for (size_t i = 1; i < cases.size(); i += 2) drawn[cases[i].group].insert(folds[i]);
  for (const auto& [name, in] : drawn) EXPECT_EQ(in.size(), 1u) << name;
}

TEST(Split, ASeedOfItsOwnHoldsTheSameCasesOut) {
  int64_t groups = 0;
  Dataset dataset;
  dataset.cases = random_cases(3, &groups);
  const auto held_out = [&](int64_t split_seed, uint64_t seed) {
    DataOptions data;
    data.split_seed = split_seed;
    split_cases(dataset, data, 1, seed);
    return dataset.validation;
  };
  EXPECT_EQ(held_out(11, 0), held_out(-1, 11));
  EXPECT_EQ(held_out(11, 0), held_out(11, 12));
  EXPECT_NE(held_out(11, 0), held_out(12, 0));
}

TEST(Split, AFoldThatCannotBeMadeSaysSo) {
  Dataset dataset;
  dataset.cases = {{.id = "a", .group = "a", .images = {}, .label = "", .mask = "", .split = ""}};
  DataOptions data;
  EXPECT_THAT(error_of([&] { split_cases(dataset, data, 0, 0); }), HasSubstr("data.split: none"));
  EXPECT_THAT(error_of([&] { split_cases(dataset, data, 5, 0); }), HasSubstr("training.fold is 5"));
}

}  // namespace
}  // namespace vox
