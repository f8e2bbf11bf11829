#include "volume/cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "volume/buffer_pool.h"
#include "volume/handles.h"
#include "volume/test_volumes.h"

namespace vox {
namespace {

class CacheTest : public testing::Test {
 protected:
  SharedVolume held(int64_t bytes) {
    Reservation reservation = budget_.reserve(bytes, "a test");
    return std::make_shared<HeldVolume>(
        HeldVolume{make_volume<uint8_t>({1, 1, bytes}, [](int64_t) { return 0; }), std::move(reservation)});
  }
  SharedVolume get(int64_t key, int64_t bytes) {
    return cache_.get(key, [&] { return held(bytes); });
  }
  MemoryBudget budget_{100, [this](int64_t bytes) { return cache_.free_idle(bytes); }};
  VolumeCache cache_;
};

TEST_F(CacheTest, BytesAreThoseOfTheVolumesHeld) {
  get(1, 30);
  get(2, 50);
  EXPECT_EQ(budget_.used(), 80);
  get(2, 50);
  EXPECT_EQ(budget_.used(), 80);
  cache_.erase(1);
  EXPECT_EQ(budget_.used(), 50);
  EXPECT_EQ(cache_.hits(), 1);
  EXPECT_EQ(cache_.misses(), 2);
}

TEST_F(CacheTest, TheLeastRecentlyUsedGoesFirst) {
  get(1, 40);
  get(2, 40);
  EXPECT_TRUE(cache_.find(1));
  get(3, 40);
  EXPECT_FALSE(cache_.find(2));
  EXPECT_TRUE(cache_.find(1));
  EXPECT_EQ(budget_.used(), 80);
  EXPECT_LE(budget_.peak(), 100);
}

TEST_F(CacheTest, AVolumeInUseStays) {
  const SharedVolume pinned = get(1, 60);
  get(2, 30);
  get(3, 40);
  EXPECT_TRUE(cache_.find(1));
  EXPECT_FALSE(cache_.find(2));
}

TEST_F(CacheTest, WhoAsksForMoreThanAllGetsTheSizeNeeded) {
  EXPECT_THAT(error_of([&] { get(1, 101); }), testing::HasSubstr("101 B"));
  EXPECT_FALSE(cache_.find(1));
  EXPECT_EQ(budget_.used(), 0);
}

TEST_F(CacheTest, AReservationWaitsForAnotherThread) {
  SharedVolume pinned = get(1, 80);
  std::atomic<bool> done{false};
  std::thread other([&] {
    const Reservation bytes = budget_.reserve(50, "a test");
    done = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(done);
  pinned.reset();  // idle now: it is dropped for the other
  other.join();
  EXPECT_TRUE(done);
  EXPECT_GT(budget_.waited_s(), 0);
}

TEST_F(CacheTest, ManyWhoAskShareOneLoad) {
  std::atomic<int> loads{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (int64_t key = 0; key < 5; ++key) {
        const SharedVolume volume = cache_.get(key, [&] {
          ++loads;
          std::this_thread::sleep_for(std::chrono::milliseconds(2));
          return held(10 + key);
        });
        EXPECT_EQ(volume->volume.info.extent.x, 10 + key);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(loads, 5);
  EXPECT_EQ(budget_.used(), 60);
}

TEST_F(CacheTest, AFailedLoadReachesItsCallerAndTheNextTriesAgain) {
  EXPECT_THAT(error_of([&] { cache_.get(1, []() -> SharedVolume { throw Error("bad file"); }); }),
              testing::HasSubstr("bad file"));
  EXPECT_TRUE(get(1, 10));
}

TEST(BufferPool, BuffersComeBackAndTheirBytesStayCounted) {
  MemoryBudget budget(int64_t{1} << 20, [](int64_t) { return false; });
  BufferPool pool(budget);
  const std::byte* first = pool.acquire(200000, "a test").get();
  EXPECT_EQ(pool.acquire(190000, "a test").get(), first) << "recycled";
  EXPECT_GE(budget.used(), 200000);
  const auto a = pool.acquire(200000, "a test"), b = pool.acquire(200000, "a test");
  EXPECT_NE(a.get(), b.get());
  EXPECT_FALSE(pool.free_idle());
  EXPECT_EQ(pool.bytes(), budget.used());
}

TEST(Handles, OnlyTheRecentOnesStayOpen) {
  Handles<int> handles(2);
  int opened = 0;
  const auto open = [&] { return std::make_shared<int>(++opened); };
  handles.get(1, open);
  handles.get(2, open);
  handles.get(1, open);
  handles.get(3, open);
  EXPECT_EQ(opened, 3);
  handles.get(1, open);
  EXPECT_EQ(opened, 3) << "1 was used more recently than 2";
  handles.get(2, open);
  EXPECT_EQ(opened, 4);
}

}  // namespace
}  // namespace vox
