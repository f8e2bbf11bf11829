#include "infer/predict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"

namespace vox {
namespace {

using testing::ElementsAre;

TEST(DatasetOfInputs, TakesFromAFileWhatTheRecipeTakesFromIt) {
  DataOptions data;
  data.images = {"*-pats/{id}", "*-pats/{id}:PTV56", "*-pats/{id}:PTV70"};
  data.mask = "*-pats/{id}:possible_dose_mask";
  const Dataset dataset = dataset_of_inputs({"folder/pt_7", "folder/pt_8,other/pt_8:ct"}, data);
  EXPECT_EQ(dataset.cases[0].id, "pt_7");
  EXPECT_THAT(dataset.cases[0].images, ElementsAre("folder/pt_7", "folder/pt_7:PTV56", "folder/pt_7:PTV70"));
  EXPECT_EQ(dataset.cases[0].mask, "folder/pt_7:possible_dose_mask");
  EXPECT_THAT(dataset.cases[1].images, ElementsAre("folder/pt_8", "other/pt_8:ct")) << "as it was written";
}

TEST(DatasetOfInputs, LeavesOutWhatLiesElsewhere) {
  DataOptions data;
  data.images = {"images/{id}_0.tif", "images/{id}_1.tif"};
  data.mask = "masks/{id}.tif";
  const Dataset dataset = dataset_of_inputs({"a.tif", "b.tif"}, data);
  EXPECT_THAT(dataset.cases[0].images, ElementsAre("a.tif"));
  EXPECT_EQ(dataset.cases[0].mask, "");
  EXPECT_THAT(dataset.test, ElementsAre(0, 1));
}

TEST(DatasetOfInputs, ADatasetIsPartOfTheNameOnlyWhereItTellsInputsApart) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "datasets";
  std::filesystem::create_directories(folder);
  for (const char* name : {"a.h5", "b.h5", "c:d.tif"}) std::ofstream(folder / name) << "voxels";
  const auto ids = [&](const std::vector<std::string>& names) {
    std::vector<std::string> inputs, found;
    for (const std::string& name : names) inputs.push_back((folder / name).string());
    for (const Case& item : dataset_of_inputs(inputs, {}).cases) found.push_back(item.id);
    return found;
  };
  EXPECT_THAT(ids({"a.h5:raw/s0", "b.h5:raw/s0", "c:d.tif"}), ElementsAre("a", "b", "c:d"));
  EXPECT_THAT(ids({"a.h5:raw/s0", "a.h5:raw/s1", "b.h5:raw"}), ElementsAre("a_raw_s0", "a_raw_s1", "b"));
  EXPECT_THROW(ids({"a.h5:raw", "a.h5:raw"}), Error);
}

TEST(DatasetOfInputs, NamesCasesAsTheRecipeDoesAndFindsTheirOtherChannels) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "channels";
  std::filesystem::create_directories(folder);
  for (const char* name : {"a_0000.npy", "a_0001.npy", "b_0000.npy"}) std::ofstream(folder / name) << "voxels";
  DataOptions data;
  data.images = {"imagesTr/{id}_0000.npy", "imagesTr/{id}_0001.npy"};
  const std::string a = (folder / "a_0000.npy").string(), b = (folder / "b_0000.npy").string();
  const std::string also_a = (folder / "a_0001.npy").string();
  const Dataset dataset = dataset_of_inputs({a, b, "c.npy", "d_0000.npy,e.npy"}, data);
  EXPECT_THAT(dataset.cases[0].images, ElementsAre(a, also_a));
  EXPECT_THAT(dataset.cases[1].images, ElementsAre(b)) << "its second channel is not there";
  std::vector<std::string> ids;
  for (const Case& item : dataset.cases) ids.push_back(item.id);
  EXPECT_THAT(ids, ElementsAre("a", "b", "c", "d"));
  EXPECT_THAT(dataset.cases[3].images, ElementsAre("d_0000.npy", "e.npy")) << "as it was written";
}

TEST(DatasetOfInputs, FindsChannelsInTheFoldersOfTheRecipe) {
  const std::filesystem::path root = std::filesystem::path(testing::TempDir()) / "modalities";
  for (const char* folder : {"ct", "pet", "mine"}) std::filesystem::create_directories(root / folder);
  for (const char* name : {"ct/a.npy", "pet/a.npy", "ct/b.npy", "mine/a.npy"}) std::ofstream(root / name) << "voxels";
  DataOptions data;
  data.images = {"ct/{id}.npy", "pet/{id}.npy"};
  const auto images_of = [&](const char* input) {
    return dataset_of_inputs({(root / input).string()}, data).cases[0].images;
  };
  EXPECT_THAT(images_of("ct/a.npy"), ElementsAre((root / "ct/a.npy").string(), (root / "pet/a.npy").string()));
  EXPECT_THAT(images_of("ct/b.npy"), ElementsAre((root / "ct/b.npy").string())) << "no second channel";
  EXPECT_THAT(images_of("mine/a.npy"), ElementsAre((root / "mine/a.npy").string())) << "and not the first one again";
}

}  // namespace
}  // namespace vox
