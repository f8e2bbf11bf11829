// Components, tunnels and cavities on the GPU against the CPU's, which are those of gudhi and of the whole boundary
// matrix: the same pairs in the same order, for every level and construction.
#include "kernels/persistence_cuda.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/cuda_test_effort.h"
#include "base/drawn_seed.h"
#include "base/random.h"
#include "kernels/cuda_test_memory.h"

namespace vox::cuda {
namespace {

using at::Tensor;
using Pairs = std::vector<PersistencePair>;

// One map on the GPU, with memory that holds garbage.
class MapOnGpu {
 public:
  MapOnGpu(const std::vector<float>& values, const Extent3& extent)
      : extent_(extent),
        values_(device_bytes(values.data(), static_cast<int64_t>(values.size() * sizeof(float)))),
        workspace_(
            at::full({most_of(persistence_workspace, extent)}, 0xee, at::TensorOptions(at::kCUDA).dtype(at::kByte))),
        room_(at::full({most_of(most_persistence_pairs, extent), 2}, -77,
                       at::TensorOptions(at::kCUDA).dtype(at::kLong))) {}

  int64_t find(int dimension, const PersistenceOptions& options) {
    return persistence_pairs_cuda(reinterpret_cast<PersistencePair*>(room_.data_ptr<int64_t>()),
                                  static_cast<const float*>(values_.const_data_ptr()), extent_, dimension, options,
                                  workspace_.data_ptr(), nullptr);
  }
  Pairs pairs(int dimension, const PersistenceOptions& options) {
    const std::vector<std::byte> bytes = host_bytes(room_.narrow(0, 0, find(dimension, options)));
    Pairs found(bytes.size() / sizeof(PersistencePair));
    if (!found.empty()) std::memcpy(found.data(), bytes.data(), bytes.size());
    return found;
  }

 private:
  static int64_t most_of(int64_t (*size)(const Extent3&, int), const Extent3& extent) {
    return std::max({size(extent, 0), size(extent, 1), size(extent, 2)});
  }

  Extent3 extent_;
  Tensor values_, workspace_, room_;
};

enum class Content {
  kNoise,
  kMask,
  kLevels,
  kZeros,
  kWaves,
  kNoisyWaves,
  kRounded,
  kSpeckles,
  kStairs,
  kSlope,
  kWells,
  kLattice,
  kCount
};

double wave(const Extent3& at) {
  const auto [z, y, x] = std::array{static_cast<double>(at.z), static_cast<double>(at.y), static_cast<double>(at.x)};
  return 0.15 - std::abs(std::sin(z * 0.17 + y * 0.05) + std::sin(y * 0.13 + x * 0.07) + std::sin(x * 0.19 - z * 0.06));
}

float bf16_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  bits = (bits + 0x8000) & 0xffff0000;
  std::memcpy(&value, &bits, sizeof bits);
  return value;
}

// Lattice: more tunnels than the GPU has room for, which the CPU has to find.
float lattice_at(const Extent3& at) {
  const int64_t odd = at.z % 2 + at.y % 2 + at.x % 2;
  return odd == 3 ? 2.0f : odd == 0 ? 3.0f : static_cast<float>(odd) / 2;
}

// Stairs and wells: minima that grow older or younger along a row, with passes between them that come the other way
// round. Most rounds end a single component there, and the host has to finish. On a slope all but one end at once.
float content_at(Content content, const Extent3& at, int64_t i, Random& random) {
  const float noise = random.uniform();
  const auto noisy = [&] { return static_cast<float>(1 / (1 + std::exp(-6 * wave(at) - random.normal()))); };
  switch (content) {
    case Content::kNoise:
      return noise - 0.5f;
    case Content::kMask:
      return wave(at) > 0 && noise > 0.02f ? 1.0f : 0.0f;
    case Content::kLevels:
      return std::floor(noise * 4) - 1;
    case Content::kZeros:
      return noise < 0.2f ? -1.0f : noise < 0.6f ? -0.0f : 0.0f;
    case Content::kWaves:
      return static_cast<float>(wave(at));
    case Content::kNoisyWaves:
      return noisy();
    case Content::kRounded:
      return bf16_of(noisy());
    case Content::kSpeckles:
      return noise < 0.05f ? 1.0f : 0.0f;
    case Content::kStairs:
      return (at.z + at.y + at.x) % 2 == 0 ? static_cast<float>(i) : 1e6f - static_cast<float>(i);
    case Content::kSlope:
      return i % 2 == 0 ? static_cast<float>(i) : 1e6f + static_cast<float>(i);
    case Content::kLattice:
      return lattice_at(at);
    default:
      return i % 2 == 0 ? -static_cast<float>(i) : 1e6f + static_cast<float>(i);
  }
}

std::vector<float> map_of(Content content, const Extent3& extent, Random& random) {
  std::vector<float> values(static_cast<size_t>(extent.voxels()));
  for (int64_t i = 0; i < extent.voxels(); ++i)
    values[static_cast<size_t>(i)] =
        content_at(content, {i / (extent.y * extent.x), i / extent.x % extent.y, i % extent.x}, i, random);
  return values;
}

class PersistenceCuda : public testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
    RecordProperty("seed", std::to_string(seed_));
  }
  const uint64_t seed_ = drawn_seed();
};

TEST_F(PersistenceCuda, PairsAreThoseOfTheCpu) {
  for (int sample = 0; sample < (small_tests() ? 10 : 150); ++sample) {
    Random random(seed_, 0, static_cast<uint32_t>(sample));
    const int64_t most = small_tests() ? 7 : sample % 3 == 0 ? 4 : sample % 3 == 1 ? 12 : 40;
    Extent3 extent;
    for (int axis = 0; axis < 3; ++axis) extent[axis] = random.chance(0.1) ? 1 : 1 + random.below(most);
    const auto content = static_cast<Content>(sample % static_cast<int>(Content::kCount));
    const std::vector<float> values = map_of(content, extent, random);
    MapOnGpu map(values, extent);
    for (const int dimension : {0, 1, 2})
      for (const Level level : {Level::kRising, Level::kFalling})
        for (const Construction construction : {Construction::kVertices, Construction::kCubes}) {
          const PersistenceOptions options{level, construction};
          ASSERT_TRUE(map.pairs(dimension, options) == persistence_pairs_cpu(values.data(), extent, dimension, options))
              << extent << " content " << sample % static_cast<int>(Content::kCount) << " dimension " << dimension
              << " level " << static_cast<int>(level) << " construction " << static_cast<int>(construction) << " seed "
              << seed_ << " sample " << sample;
        }
  }
}

TEST_F(PersistenceCuda, ConstantsHaveOneComponentAndNothingElse) {
  for (const float value : {0.0f, -3.5f, 1e30f}) {
    MapOnGpu map(std::vector<float>(5 * 6 * 7, value), {5, 6, 7});
    EXPECT_EQ(map.pairs(0, {}), (Pairs{{0, PersistencePair::kNever}}));
    EXPECT_TRUE(map.pairs(1, {}).empty());
    EXPECT_TRUE(map.pairs(2, {}).empty());
  }
}

TEST_F(PersistenceCuda, LongRowsOfMinimaTakeNoLongerThanOthers) {
  const Extent3 row{1, 1, small_tests() ? 1000 : 1'000'000};
  for (const Content content : {Content::kSlope, Content::kWells, Content::kStairs}) {
    Random random(seed_, 3, 0);
    const std::vector<float> values = map_of(content, row, random);
    MapOnGpu map(values, row);
    const auto start = std::chrono::steady_clock::now();
    const Pairs found = map.pairs(0, {});
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    EXPECT_TRUE(found == persistence_pairs_cpu(values.data(), row, 0)) << "content " << static_cast<int>(content);
    if (!small_tests()) EXPECT_LT(taken.count(), 1) << "content " << static_cast<int>(content);
  }
}

TEST_F(PersistenceCuda, RepeatsAreTheSame) {
  Random random(seed_, 1, 0);
  const int64_t side = small_tests() ? 8 : 56;
  const Extent3 extent{side, side + 5, side + 10};
  for (const Content content : {Content::kNoise, Content::kRounded, Content::kStairs}) {
    MapOnGpu map(map_of(content, extent, random), extent);
    for (const int dimension : {0, 1, 2}) {
      const Pairs first = map.pairs(dimension, {});
      for (int repeat = 1; repeat < (small_tests() ? 2 : 20); ++repeat)
        ASSERT_TRUE(map.pairs(dimension, {}) == first)
            << "dimension " << dimension << " repeat " << repeat << " seed " << seed_;
    }
  }
}

// What persistence_bench.cpp measures, beside one core of the same machine.
TEST_F(PersistenceCuda, LargeMapsAndTheirTimes) {
  if (small_tests()) GTEST_SKIP() << "large maps";
  Random random(seed_, 2, 0);
  for (const Extent3& extent : {Extent3{128, 128, 128}, Extent3{72, 136, 136}})
    for (const auto& [content, name] : {std::pair{Content::kNoisyWaves, "noisy map"}, std::pair{Content::kMask, "mask"},
                                        std::pair{Content::kWaves, "sheets"}}) {
      const std::vector<float> values = map_of(content, extent, random);
      MapOnGpu map(values, extent);
      for (const int dimension : {0, 1, 2}) {
        const PersistenceOptions options{.level = Level::kFalling};
        const auto start = std::chrono::steady_clock::now();
        const Pairs truth = persistence_pairs_cpu(values.data(), extent, dimension, options);
        const double cpu_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        ASSERT_TRUE(map.pairs(dimension, options) == truth) << extent << " " << name << " dimension " << dimension;
        const double gpu_ms = milliseconds_of(5, [&] { map.find(dimension, options); });
        std::cout << extent << ' ' << name << ", dimension " << dimension << ": GPU " << gpu_ms << " ms, CPU "
                  << 1000 * cpu_s << " ms, " << truth.size() << " pairs\n";
      }
    }
}

}  // namespace
}  // namespace vox::cuda
