#include "infer/predict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace vox
