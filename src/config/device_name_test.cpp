#include "config/device_name.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <optional>

#include "base/error.h"

namespace vox {
namespace {

class VisibleGpus : public testing::Test {
 protected:
  VisibleGpus() {
    if (const char* given = std::getenv(kName)) before_ = given;
  }
  ~VisibleGpus() override { before_ ? setenv(kName, before_->c_str(), 1) : unsetenv(kName); }

  static constexpr const char* kName = "CUDA_VISIBLE_DEVICES";
  std::optional<std::string> before_;
};

TEST_F(VisibleGpus, AreCountedAmongThoseThatTheUserLetsSee) {
  unsetenv(kName);
  EXPECT_EQ(visible_gpu(2), "2");
  setenv(kName, "4,GPU-7c", 1);
  EXPECT_EQ(visible_gpu(0), "4");
  EXPECT_EQ(visible_gpu(1), "GPU-7c");
  EXPECT_THROW(visible_gpu(2), Error);
  setenv(kName, "", 1);
  EXPECT_THROW(visible_gpu(0), Error);
}

TEST_F(VisibleGpus, AGpuThatIsNamedIsTheOnlyOne) {
  setenv(kName, "4,7", 1);
  for (const char* name : {"cpu", "cuda", "cuda:0", "cuda:x"}) see_only(name);
  EXPECT_STREQ(std::getenv(kName), "4,7");
  EXPECT_FALSE(sees_one_gpu());
  see_only("cuda:1");
  EXPECT_STREQ(std::getenv(kName), "7");
  EXPECT_TRUE(sees_one_gpu());
}

}  // namespace
}  // namespace vox
