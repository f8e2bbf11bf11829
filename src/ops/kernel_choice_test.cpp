#include "ops/kernel_choice.h"

#include <gtest/gtest.h>

namespace vox::ops {
namespace {

struct Timer {
  bool answer = true;
  int asked = 0;
  std::function<bool()> function() {
    return [this] {
      ++asked;
      return answer;
    };
  }
};

TEST(KernelChoice, FixedIsWhatIsExpected) {
  set_kernel_timing(KernelTiming::kFixed);
  Timer timer;
  adopt_kernel_choices({{"known", "own"}});
  EXPECT_FALSE(choose_own("a", false, timer.function()));
  EXPECT_TRUE(choose_own("a", true, timer.function()));
  EXPECT_FALSE(choose_own("known", false, timer.function()));
  EXPECT_EQ(timer.asked, 0);
}

TEST(KernelChoice, IsTimedOncePerShapeAndKept) {
  set_kernel_timing(KernelTiming::kOncePerShape);
  Timer yes, no{.answer = false};
  EXPECT_FALSE(choose_own("b", false, nullptr));  // nobody can time now, and nothing is kept
  EXPECT_EQ(kernel_choices().count("b"), 0u);
  EXPECT_TRUE(choose_own("b", false, yes.function()));
  EXPECT_FALSE(choose_own("c", true, no.function()));
  EXPECT_TRUE(choose_own("b", false, no.function()));
  EXPECT_TRUE(choose_own("b", false, nullptr));
  EXPECT_EQ(yes.asked, 1);
  EXPECT_EQ(no.asked, 1);
  EXPECT_EQ(kernel_choices().at("b"), "own");
  EXPECT_EQ(kernel_choices().at("c"), "cudnn");
  adopt_kernel_choices({{"b", "cudnn"}, {"d", "own"}});
  EXPECT_FALSE(choose_own("b", true, yes.function()));
  EXPECT_TRUE(choose_own("d", false, no.function()));
  EXPECT_EQ(yes.asked + no.asked, 2);
  set_kernel_timing(KernelTiming::kFixed);
}

}  // namespace
}  // namespace vox::ops
