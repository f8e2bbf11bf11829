#include "report/foreign_error.h"

#include <gtest/gtest.h>

namespace vox {
namespace {

// As torch 2.13 throws them.
TEST(ForeignError, MemoryIsToldInOneSentence) {
  const ForeignError cpu = foreign_error(
      "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
      "56623104 bytes. Error code 12 (Cannot allocate memory)\nframe #0: c10::ThrowEnforceNotMet");
  EXPECT_TRUE(cpu.out_of_memory);
  EXPECT_EQ(cpu.sentence, "out of memory: 54.0 MiB more were asked for");
  const ForeignError gpu = foreign_error(
      "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139.80 GiB of which 1.02 GiB is "
      "free. If reserved but unallocated memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True");
  EXPECT_TRUE(gpu.out_of_memory);
  EXPECT_EQ(gpu.sentence, "out of memory: 2.00 GiB more were asked for on the GPU");
}

TEST(ForeignError, OthersKeepTheirFirstLine) {
  const ForeignError error = foreign_error("index 3 is out of bounds\nException raised from select at a.cpp:1");
  EXPECT_FALSE(error.out_of_memory);
  EXPECT_EQ(error.sentence, "index 3 is out of bounds");
  EXPECT_EQ(foreign_error("out of memory: 12 bytes were asked for").sentence, "out of memory: 12 bytes were asked for");
  EXPECT_EQ(foreign_error("").sentence, "");
}

}  // namespace
}  // namespace vox
