#include "infer/sliding_window.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <torch/torch.h>

#include <cmath>

#include "base/error.h"
#include "base/random.h"
#include "nets/network.h"

namespace vox {
namespace {

TEST(Windows, CoverEveryVoxelAndOverlapAsAsked) {
  for (uint64_t round = 0; round < 200; ++round) {
    Random random(5, round, kSynthStream);
    const Extent3 window{random.below(20) + 4, random.below(20) + 4, random.below(20) + 4};
    const Extent3 volume{random.below(60) + 1, random.below(60) + 1, random.below(60) + 1};
    const double overlap = random.uniform(0, 0.9);
    std::vector<int> covered(static_cast<size_t>(volume.voxels()));
    for (const Extent3& begin : window_begins(volume, window, overlap)) {
      for (int axis = 0; axis < 3; ++axis) {
        if (volume[axis] >= window[axis]) {
          EXPECT_GE(begin[axis], 0);
          EXPECT_LE(begin[axis] + window[axis], volume[axis]);
        } else {
          EXPECT_LE(begin[axis], 0);
          EXPECT_GE(begin[axis] + window[axis], volume[axis]);
        }
      }
      const Box3 box = intersect({begin, begin + window}, whole(volume));
      for (int64_t z = box.begin.z; z < box.end.z; ++z)
        for (int64_t y = box.begin.y; y < box.end.y; ++y)
          for (int64_t x = box.begin.x; x < box.end.x; ++x)
            ++covered[static_cast<size_t>((z * volume.y + y) * volume.x + x)];
    }
    EXPECT_EQ(std::count(covered.begin(), covered.end(), 0), 0) << volume << " by " << window;
  }
}

TEST(Windows, NeighboursAreNoFurtherApartThanTheOverlapAllows) {
  const std::vector<Extent3> begins = window_begins({100, 8, 8}, {24, 8, 8}, 0.5);
  for (size_t i = 1; i < begins.size(); ++i) EXPECT_LE(begins[i].z - begins[i - 1].z, 12);
  EXPECT_EQ(begins.back().z, 76);
  EXPECT_THROW(window_begins({100, 8, 8}, {24, 8, 8}, 1.0), Error);
}

TEST(Windows, OverARegionCoverItAndLieInsideTheVolume) {
  for (uint64_t round = 0; round < 200; ++round) {
    Random random(6, round, kSynthStream);
    Extent3 window, volume;
    Box3 region;
    for (int axis = 0; axis < 3; ++axis) {
      window[axis] = random.below(12) + 4;
      volume[axis] = random.below(40) + 1;
      region.begin[axis] = random.below(volume[axis]);
      region.end[axis] = region.begin[axis] + 1 + random.below(volume[axis] - region.begin[axis]);
    }
    std::vector<int> covered(static_cast<size_t>(volume.voxels()));
    const std::vector<Extent3> begins = window_begins(volume, window, random.uniform(0, 0.9), region);
    for (const Extent3& begin : begins) {
      EXPECT_TRUE(whole(max(volume, window)).contains({max(begin, {0, 0, 0}), max(begin, {0, 0, 0}) + window}));
      const Box3 box = intersect({begin, begin + window}, whole(volume));
      for (int64_t z = box.begin.z; z < box.end.z; ++z)
        for (int64_t y = box.begin.y; y < box.end.y; ++y)
          for (int64_t x = box.begin.x; x < box.end.x; ++x)
            ++covered[static_cast<size_t>((z * volume.y + y) * volume.x + x)];
    }
    for (int64_t z = region.begin.z; z < region.end.z; ++z)
      for (int64_t y = region.begin.y; y < region.end.y; ++y)
        for (int64_t x = region.begin.x; x < region.end.x; ++x)
          EXPECT_GT(covered[static_cast<size_t>((z * volume.y + y) * volume.x + x)], 0) << round;
    const bool fits = min(region.extent(), window) == region.extent();
    EXPECT_TRUE(!fits || begins.size() == 1) << round;
  }
}

TEST(WindowBegins, AreMovedBackAndOnByTheShift) {
  const Extent3 volume{32, 20, 20}, window{16, 16, 16};
  const Box3 region{{8, 2, 2}, {24, 18, 18}};
  const std::vector<Extent3> expected{{4, 2, 0}, {4, 2, 4}, {12, 2, 0}, {12, 2, 4}};
  EXPECT_EQ(window_begins(volume, window, 0, region, {4, 0, 2}), expected);
  const std::vector<Extent3> seen{{0, 0, -7}};  // one voxel: the window at 1 would see nothing
  EXPECT_EQ(window_begins({16, 16, 1}, {16, 16, 8}, 0, whole({16, 16, 1}), {0, 0, 4}), seen);
  EXPECT_THROW(window_begins(volume, window, 0, region, {9, 0, 0}), Error);
}

TEST(BlendWeights, AreAGaussianOfAnEighthOfTheWindow) {
  const Extent3 window{16, 8, 9};
  const std::vector<float> weights = blend_weights(window, Blend::kGaussian);
  const auto at = [&](int64_t z, int64_t y, int64_t x) {
    return static_cast<double>(weights[static_cast<size_t>((z * window.y + y) * window.x + x)]);
  };
  const auto bell = [](double offset, double size) { return std::exp(-0.5 * std::pow(offset / (size / 8), 2)); };
  EXPECT_NEAR(at(9, 3, 4), bell(1.5, 16) * bell(0.5, 8) * bell(0, 9), 1e-6);
  EXPECT_NEAR(at(0, 0, 0), 1e-3, 1e-9);
}

class AddsOne : public Network {  // two channels: image + 1, and -image
 public:
  std::vector<at::Tensor> forward(const at::Tensor& image, const ForwardContext&) override {
    return {at::cat({image + 1, -image}, 1)};
  }
  Extent3 divisor() const override { return {4, 4, 4}; }
};

// A network that looks at each voxel alone gives the same volume however it is cut.
TEST(SlidingWindow, BlendsBackToWhatOneWindowWouldGive) {
  for (const Extent3 volume : {Extent3{17, 30, 9}, Extent3{3, 5, 40}}) {
    std::vector<float> image(static_cast<size_t>(volume.voxels()));
    Random random(9, 0, kSynthStream);
    for (float& value : image) value = static_cast<float>(random.normal());
    const Extent3 window{8, 12, 8};
    WindowSource source{.extent = volume, .channels = 1, .read = {}};
    source.read = [&](const Extent3& begin, int64_t, float* out) {
      for (int64_t z = 0; z < window.z; ++z)
        for (int64_t y = 0; y < window.y; ++y)
          for (int64_t x = 0; x < window.x; ++x) {
            const int64_t from_z = std::clamp<int64_t>(begin.z + z, 0, volume.z - 1);
            const int64_t from_y = std::clamp<int64_t>(begin.y + y, 0, volume.y - 1);
            const int64_t from_x = std::clamp<int64_t>(begin.x + x, 0, volume.x - 1);
            *out++ = image[static_cast<size_t>((from_z * volume.y + from_y) * volume.x + from_x)];
          }
    };
    AddsOne network;
    network.parameters().add({.name = "unused", .shape = {1}});
    for (const auto& [blend, shift] :
         {std::pair{Blend::kGaussian, Extent3{}}, std::pair{Blend::kConstant, Extent3{}},
          std::pair{Blend::kBump, Extent3{}}, std::pair{Blend::kGaussian, Extent3{3, 6, 4}},
          std::pair{Blend::kConstant, Extent3{4, 0, 1}}}) {
      const SlidingWindowOptions options{window, 0.5, blend, 3, Augment::kMirrorRotate, {}, shift};
      const Logits logits = predict_logits(network, source, options);
      ASSERT_EQ(logits.channels, 2);
      ASSERT_EQ(logits.extent, volume);
      const float* values = logits.data.as<float>();
      for (size_t i = 0; i < image.size(); ++i) {
        EXPECT_NEAR(values[i], image[i] + 1, 1e-5F);
        EXPECT_NEAR(values[image.size() + i], -image[i], 1e-5F);
      }
    }
  }
}

WindowSource noise_source(const Extent3& volume, const Extent3& window, std::vector<float>* image) {
  image->resize(static_cast<size_t>(volume.voxels()));
  Random random(11, 0, kSynthStream);
  for (float& value : *image) value = static_cast<float>(random.normal());
  WindowSource source{.extent = volume, .channels = 1};
  source.read = [volume, window, image](const Extent3& begin, int64_t, float* out) {
    for (int64_t z = 0; z < window.z; ++z)
      for (int64_t y = 0; y < window.y; ++y)
        for (int64_t x = 0; x < window.x; ++x) {
          const Extent3 at = begin + Extent3{z, y, x};
          const bool inside = whole(volume).contains({at, at + Extent3{1, 1, 1}});
          *out++ = inside ? (*image)[static_cast<size_t>((at.z * volume.y + at.y) * volume.x + at.x)] : 0;
        }
  };
  return source;
}

TEST(SlidingWindow, OfAResidentVolumeIsTheSameToTheBit) {
  const Extent3 volume{21, 12, 17}, window{8, 8, 8};
  std::vector<float> image;
  const WindowSource source = noise_source(volume, window, &image);
  AddsOne network;
  network.parameters().add({.name = "unused", .shape = {1}});
  const SlidingWindowOptions options{window, 0.6, Blend::kGaussian, 3};
  const Logits expected = predict_logits(network, source, options);
  const at::Tensor resident = at::from_blob(image.data(), {1, volume.z, volume.y, volume.x}, at::kFloat);
  const at::Tensor found = predict_resident({&network}, resident, options).contiguous();
  ASSERT_EQ(found.numel(), 2 * volume.voxels());
  EXPECT_TRUE(std::equal(found.const_data_ptr<float>(), found.const_data_ptr<float>() + found.numel(),
                         expected.data.as<float>()));
}

void expect_the_same_wherever_the_run_starts(const std::optional<Box3>& region, const Extent3& shift = {}) {
  const Extent3 volume{37, 12, 9}, window{8, 8, 8};
  std::vector<float> image;
  WindowSource source = noise_source(volume, window, &image);
  source.region = region;
  AddsOne network;
  network.parameters().add({.name = "unused", .shape = {1}});
  const SlidingWindowOptions options{window, 0.7, Blend::kGaussian, 3, Augment::kNone, {}, shift};
  const int64_t slice = volume.y * volume.x;
  std::vector<int64_t> marks;
  const auto run_from = [&](int64_t first) {
    std::vector<float> values(static_cast<size_t>(2 * volume.voxels()), -7);
    int64_t next = first;
    SlabRun run{.first_slice = first, .write = {}};
    run.write = [&](const Slab& slab) {
      EXPECT_EQ(slab.z_begin, next);
      next = slab.z_end;
      const int64_t count = (slab.z_end - slab.z_begin) * slice;
      for (int64_t channel = 0; channel < 2; ++channel)
        std::copy_n(slab.logits + channel * count, count,
                    values.begin() + channel * volume.voxels() + slab.z_begin * slice);
    };
    run.written = [&](int64_t slices) {
      if (first == 0) marks.push_back(slices);
    };
    predict_slabs({&network}, source, options, run);
    EXPECT_EQ(next, volume.z);
    return values;
  };
  const std::vector<float> whole_run = run_from(0);
  ASSERT_GT(marks.size(), region ? 5U : 10U);
  if (region) {  // windows of 8 over 17 slices from 14 on: nothing is known outside 14:31, and as far as they are moved
    const Box3 known{{14 - shift.z, 0, 0}, Extent3{31, 8, 8} + shift};
    for (int64_t voxel = 0; voxel < volume.voxels(); ++voxel) {
      const Extent3 at{voxel / slice, voxel / volume.x % volume.y, voxel % volume.x};
      EXPECT_NE(std::isinf(whole_run[static_cast<size_t>(volume.voxels() + voxel)]),
                known.contains({at, at + Extent3{1, 1, 1}}));
    }
  }
  for (const int64_t mark : marks) {
    const std::vector<float> later = run_from(mark);
    for (int64_t channel = 0; channel < 2; ++channel) {
      const int64_t from = channel * volume.voxels() + mark * slice, count = volume.voxels() - mark * slice;
      EXPECT_TRUE(std::equal(later.begin() + from, later.begin() + from + count, whole_run.begin() + from)) << mark;
    }
  }
}

TEST(Slabs, AreTheSameToTheBitWhereverTheRunStarts) {
  expect_the_same_wherever_the_run_starts(std::nullopt);
}

TEST(Slabs, OfWindowsOverARegionAreTheSameToTheBitWhereverTheRunStarts) {
  expect_the_same_wherever_the_run_starts(Box3{{14, 0, 0}, {31, 3, 2}});
}

TEST(Slabs, OfMovedWindowsAreTheSameToTheBitWhereverTheRunStarts) {
  expect_the_same_wherever_the_run_starts(std::nullopt, {4, 1, 3});
  expect_the_same_wherever_the_run_starts(Box3{{14, 0, 0}, {31, 3, 2}}, {3, 4, 0});
}

TEST(Slabs, AnErrorOfReaderOrWriterReachesTheCaller) {
  const Extent3 volume{24, 8, 8}, window{8, 8, 8};
  std::vector<float> image;
  WindowSource source = noise_source(volume, window, &image);
  AddsOne network;
  network.parameters().add({.name = "unused", .shape = {1}});
  const SlabRun fails{.write = [](const Slab&) { throw Error("the disk is full"); }};
  EXPECT_THROW(predict_slabs({&network}, source, {window, 0.5}, fails), Error);
  source.read = [](const Extent3& begin, int64_t, float*) { VOX_CHECK(begin.z < 4, "the file is damaged"); };
  EXPECT_THROW(predict_slabs({&network}, source, {window, 0.5}, {.write = [](const Slab&) {}}), Error);
}

// A scroll of 14376x7888x8096 voxels has 27 million windows of 64^3.
TEST(Slabs, OfManyWindowsNeedNoListOfThem) {
  const auto allocated = [] {
    const struct mallinfo2 now = mallinfo2();
    return static_cast<int64_t>(now.uordblks + now.hblkhd);
  };
  WindowSource source{.extent = {400, 100, 100}};
  int64_t asked = 0, most = 0;
  source.wanted = [&](const Extent3&) {
    if (asked++ % 4096 == 0) most = std::max(most, allocated());
    return false;
  };
  AddsOne network;
  network.parameters().add({.name = "unused", .shape = {1}});
  const int64_t before = allocated();
  predict_slabs({&network}, source, {.window = {2, 2, 2}, .overlap = 0.5}, {.write = [](const Slab&) {}});
  EXPECT_EQ(asked, 399 * 99 * 99);
  EXPECT_LT(most - before, int64_t{16} << 20);
}

TEST(Variants, KeepTheShapeOfTheWindow) {
  EXPECT_EQ(variants_of({8, 9, 10}, Augment::kNone).size(), 1U);
  EXPECT_EQ(variants_of({8, 9, 10}, Augment::kMirror).size(), 8U);
  EXPECT_EQ(variants_of({8, 9, 10}, Augment::kMirrorRotate).size(), 8U);
  EXPECT_EQ(variants_of({8, 10, 10}, Augment::kMirrorRotate).size(), 16U);
  EXPECT_EQ(variants_of({10, 10, 10}, Augment::kMirrorRotate).size(), 48U);
}

TEST(Variants, TurnsMirrorOnlyAlongAxesThatTrainingMirroredOrATurnBringsThere) {
  const auto mirrored = [](const Extent3& window, const std::vector<int64_t>& axes) {
    return variants_of(window, Augment::kMirrorRotate, {.axes = axes});
  };
  EXPECT_EQ(mirrored({8, 9, 10}, {2}), (std::vector<Variant>{{}, {.mirrored = 4}}));
  EXPECT_EQ(mirrored({8, 10, 10}, {}).size(), 4U);  // the quarter turns
  EXPECT_EQ(mirrored({8, 10, 10}, {1}).size(), 8U);
  EXPECT_EQ(mirrored({8, 10, 10}, {0}).size(), 8U);
  EXPECT_EQ(mirrored({10, 10, 10}, {}).size(), 24U);  // the turns of a cube
  for (const Variant& variant : mirrored({8, 10, 10}, {1})) EXPECT_EQ(variant.mirrored & 1, 0);
}

class TellsLeftFromRight : public Network {  // channel 0 where x is low, channel 1 where it is high
 public:
  std::vector<at::Tensor> forward(const at::Tensor& image, const ForwardContext&) override {
    const int64_t half = image.size(4) / 2;
    return {at::cat({image.narrow(1, 0, 1).narrow(4, 0, half), image.narrow(1, 1, 1).narrow(4, half, half)}, 4)};
  }
  Extent3 divisor() const override { return {1, 1, 1}; }
};

TEST(Variants, MirrorOnlyAsTrainingDidAndSwapPairedChannels) {
  const Extent3 window{4, 6, 8};
  const Mirroring mirroring{.axes = {0, 2}, .swap_channels = {0, 1}, .swap_axis = 2};
  const std::vector<Variant> variants = variants_of(window, Augment::kMirror, mirroring);
  ASSERT_EQ(variants.size(), 4U);
  for (const Variant& variant : variants) {
    EXPECT_EQ(variant.mirrored & 2, 0);
    EXPECT_EQ(variant.swapped.empty(), (variant.mirrored & 4) == 0);
  }
  TellsLeftFromRight network;
  const at::Tensor image = at::rand({2, 3, 4, 6, 8});
  const at::Tensor mean = forward_variants({&network}, image, variants, 3);
  // Mirrored and swapped, channel 1 stands where channel 0 was: the network answers the same, turned back.
  EXPECT_TRUE(at::allclose(mean, network.forward(image, {}).front(), 1e-6, 1e-7));
  const std::vector<Variant> unaware = variants_of(window, Augment::kMirror, {.axes = {0, 2}});
  EXPECT_FALSE(at::allclose(forward_variants({&network}, image, unaware, 3), network.forward(image, {}).front(), 0.01));
}

class ComparesSides : public Network {  // the left organ's mask less the right one's
 public:
  std::vector<at::Tensor> forward(const at::Tensor& image, const ForwardContext&) override {
    return {image.narrow(1, 0, 1) - image.narrow(1, 1, 1)};
  }
  Extent3 divisor() const override { return {1, 1, 1}; }
};

// The left organ (channel 0) stays on the left of the body, turned or not, unless the body is mirrored left to right:
// then it is the other one.
TEST(Variants, TurnedOnesSwapPairedChannelsWhereTheWindowIsMirroredAlongTheirAxis) {
  const Mirroring mirroring{.axes = {2}, .swap_channels = {0, 1}, .swap_axis = 2};
  const std::vector<Variant> variants = variants_of({4, 6, 6}, Augment::kMirrorRotate, mirroring);
  ASSERT_EQ(variants.size(), 8U);
  ComparesSides network;
  const at::Tensor image = at::rand({1, 2, 4, 6, 6});
  for (const Variant& variant : variants) {
    const bool turned = variant.axes[2] == 1;  // x of the variant is y of the window, and the other way round
    const bool mirrored = variant.mirrored >> (turned ? 1 : 2) & 1;
    const at::Tensor answer = forward_variants({&network}, image, {variant, variant}, 1);
    const at::Tensor plain = network.forward(image, {}).front();
    EXPECT_TRUE(at::allclose(answer, mirrored ? -plain : plain, 1e-6, 1e-7));
  }
}

}  // namespace
}  // namespace vox
