#include "train/kernel_cache.h"

#include <gtest/gtest.h>

#include "base/file.h"

namespace vox {
namespace {

class KernelCache : public testing::Test {
 protected:
  KernelCache() : folder_(fs::temp_directory_path() / testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(folder_);
  }
  ~KernelCache() override { fs::remove_all(folder_); }
  fs::path folder_;
};

TEST_F(KernelCache, IsSharedByRunsAndYieldsToACheckpoint) {
  ops::adopt_kernel_choices({{"cache a", "own"}, {"cache b", "own"}});
  keep_kernel_choices(folder_ / "cache", folder_ / "run");
  EXPECT_EQ(read_file(folder_ / "cache" / "kernels.json"), read_file(folder_ / "run" / "kernels.json"));
  ops::adopt_kernel_choices({{"cache a", "cudnn"}, {"cache b", "cudnn"}});
  recall_kernel_choices(folder_ / "cache", {{"cache b", "cudnn"}});
  EXPECT_EQ(ops::kernel_choices().at("cache a"), "own");
  EXPECT_EQ(ops::kernel_choices().at("cache b"), "cudnn");
}

TEST_F(KernelCache, ThatIsDamagedIsMadeAnew) {
  for (const char* text : {"{\"half\": \"ow", "[1, 2]", "{\"a\": 3}", ""}) {
    write_file(folder_ / "kernels.json", text);
    EXPECT_NO_THROW(recall_kernel_choices(folder_, {{"damaged", "own"}})) << text;
    keep_kernel_choices(folder_, {});
    EXPECT_NE(read_file(folder_ / "kernels.json").find("\"damaged\": \"own\""), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace vox
