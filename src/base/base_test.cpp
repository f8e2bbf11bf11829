#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <set>
#include <thread>

#include "base/dtype.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/shape.h"
#include "base/span.h"
#include "base/text.h"
#include "base/thread_pool.h"

namespace vox {
namespace {

fs::path scratch(const std::string& name) {
  return fs::temp_directory_path() / concat("vox_base_", getpid(), "_", name);
}

TEST(Error, ContextKeepsTheFault) {
  const Error error = with_context("case a", Error("disk full", Fault::kMachine));
  EXPECT_STREQ(error.what(), "case a: disk full");
  EXPECT_EQ(error.fault(), Fault::kMachine);
  EXPECT_EQ(with_context("x", std::bad_alloc()).fault(), Fault::kMachine);
}

TEST(Shape, BoxesIntersectAndContain) {
  const Box3 a{{0, 0, 0}, {4, 5, 6}}, b{{2, -1, 5}, {9, 3, 9}};
  EXPECT_EQ(intersect(a, b), (Box3{{2, 0, 5}, {4, 3, 6}}));
  EXPECT_TRUE(a.contains({{1, 1, 1}, {4, 5, 6}}));
  EXPECT_FALSE(a.contains(b));
  EXPECT_EQ(intersect(a, {{7, 0, 0}, {8, 1, 1}}).voxels(), 0);
}

TEST(BFloat16, RoundsToNearestEven) {
  EXPECT_EQ(to_bfloat16(1.0f).bits, 0x3f80);
  EXPECT_EQ(to_bfloat16(1.0f + 0x1p-8f).bits, 0x3f80);  // half way: to the even one
  EXPECT_EQ(to_bfloat16(1.0f + 0x1p-7f + 0x1p-8f).bits, 0x3f82);
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(std::nanf("")))));
  EXPECT_EQ(to_float(to_bfloat16(-INFINITY)), -INFINITY);
}

TEST(Crc32c, MatchesTheStandardsVectors) {  // RFC 3720, B.4
  const std::string zeros(32, '\0'), digits = "123456789";
  EXPECT_EQ(crc32c(std::as_bytes(std::span(zeros))), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::as_bytes(std::span(digits))), 0xe3069283u);
  const auto bytes = std::as_bytes(std::span(digits));
  EXPECT_EQ(crc32c(bytes.subspan(4), crc32c(bytes.first(4))), 0xe3069283u);
}

TEST(Text, NaturalOrderComparesNumbers) {
  std::vector<std::string> names{"a10", "a2", "b1", "a02", "a", "a2b"};
  std::sort(names.begin(), names.end(), natural_less);
  EXPECT_EQ(names, (std::vector<std::string>{"a", "a02", "a2", "a2b", "a10", "b1"}));
}

TEST(Text, NearestFindsTypingErrorsOnly) {
  const std::vector<std::string> known{"batch_size", "patch_size", "num_workers"};
  EXPECT_EQ(nearest("bacth_size", known), "batch_size");
  EXPECT_EQ(nearest("num_worker", known), "num_workers");
  EXPECT_EQ(nearest("zebra", known), "");
}

TEST(Text, NumbersAreWrittenAsPeopleDo) {
  EXPECT_EQ(human_bytes(1536), "1.5 KiB");
  EXPECT_EQ(human_seconds(252), "4 min 12 s");
  EXPECT_EQ(shortest(0.1), "0.1");
}

TEST(OutputFile, LeavesNothingWithoutCommit) {
  const fs::path folder = scratch("out"), path = folder / "deep" / "file.txt";
  { OutputFile(path).write("half"); }
  EXPECT_TRUE(fs::is_empty(folder / "deep"));
  write_file(path, "whole");
  EXPECT_EQ(read_file(path), "whole");
  fs::remove_all(folder);
}

TEST(InputFile, NamesTheFileThatEndsTooEarly) {
  const fs::path path = scratch("short");
  write_file(path, "12345");
  std::array<std::byte, 8> bytes{};
  try {
    InputFile(path).read(2, bytes);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(path.string()), std::string::npos);
  }
  EXPECT_THROW(InputFile("/nonexistent/file"), Error);
  EXPECT_THROW(InputFile(fs::temp_directory_path()), Error);
  fs::remove(path);
}

TEST(FileLock, IsHeldAgainstOtherProcesses) {
  const fs::path path = scratch("lock");
  {
    const FileLock lock(path, "busy");
    const pid_t child = fork();
    if (child == 0) {
      try {
        const FileLock second(path, "busy");
        _exit(0);
      } catch (const Error&) {
        _exit(7);
      }
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(WEXITSTATUS(status), 7);
  }
  EXPECT_NO_THROW(FileLock(path, "busy"));
  fs::remove(path);
}

TEST(ThreadPool, DoesEveryPieceOnceAlsoFromInside) {
  ThreadPool pool(3);
  std::vector<std::atomic<int>> done(64);
  pool.for_each(8, [&](int64_t i) { pool.for_each(8, [&](int64_t j) { ++done[static_cast<size_t>(i * 8 + j)]; }); });
  for (const auto& count : done) EXPECT_EQ(count.load(), 1);
}

// Each thread reserves room for a stack, so a process of bounded size can have few.
TEST(ThreadPool, SaysThatTheMachineHasNoRoomForItsThreads) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need more address space than the bound of this test";
#endif
  const auto try_many = [] {
    alarm(20);  // seconds: threads that did start were once waited for without end
    const rlimit bounded{.rlim_cur = rlim_t{1} << 30, .rlim_max = RLIM_INFINITY};
    setrlimit(RLIMIT_AS, &bounded);
    try {
      const ThreadPool pool(4096);
    } catch (const Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
      _exit(error.fault() == Fault::kMachine ? 3 : 1);
    }
    _exit(0);
  };
  EXPECT_EXIT(try_many(), testing::ExitedWithCode(3), "cannot start another thread: .*system.num_cpus");
}

TEST(ThreadPool, RethrowsTheFirstErrorAndGoesOnAfterwards) {
  ThreadPool pool(2);
  EXPECT_THROW(pool.for_each(100, [](int64_t i) { VOX_CHECK(i != 5, "five"); }), Error);
  std::atomic<int> count{0};
  pool.for_each(10, [&](int64_t) { ++count; });
  EXPECT_EQ(count.load(), 10);
}

TEST(Span, RecordsOnlyWhileOn) {
  { const Span off("off"); }
  start_recording();
  { const Span on("on"); }
  std::thread([] { const Span other("other"); }).join();
  stop_recording();
  { const Span off("off"); }
  std::set<std::string> names;
  for (const SpanRecord& record : take_spans()) {
    names.insert(record.name);
    EXPECT_LE(record.begin_ns, record.end_ns);
  }
  EXPECT_EQ(names, (std::set<std::string>{"on", "other"}));
}

}  // namespace
}  // namespace vox
