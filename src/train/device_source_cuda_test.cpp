// Batches that the GPU makes against those of the host, through the whole source of a training run.
#include "train/device_source.h"

#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include "base/file.h"
#include "base/random.h"
#include "base/span.h"
#include "base/thread_pool.h"
#include "config/presets.h"
#include "io/format.h"
#include "train/kept_batches.h"
#include "train/learner.h"

namespace vox {
namespace {

class DeviceSourceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
    folder_ = fs::temp_directory_path() / concat("vox_device_source_", getpid());
    for (int i = 0; i < 4; ++i) write_case(i, {40 + i, 48, 52});
    DataOptions& data = options_.data;
    data.root = folder_.string();
    data.images = {"images/*.npy"};
    data.label = "labels/{id}.npy";
    data.cache_dir = (folder_ / "cache").string();
    data.split = "none";
    data.patch_size = {24, 32, 40};
    data.ignore_label = 2;
    data.preprocess = {PreprocessStep{"zscore", {}}};
    apply_preset("scroll_heavy", data.patch_size, options_);
    ThreadPool pool(2);
    store_ = std::make_shared<Store>(make_dataset(data, 0, 1), data, pool);
  }
  void TearDown() override {
    if (!folder_.empty()) fs::remove_all(folder_);
  }

  void write_case(int number, const Extent3& extent) const {
    Volume image = allocate_volume({.extent = extent}), label = allocate_volume({.extent = extent});
    const Random random(5, static_cast<uint64_t>(number), kSynthStream);
    for (int64_t i = 0; i < extent.voxels(); ++i) {
      const uint32_t bits = random.bits_at(static_cast<uint32_t>(i));
      image.data.as<uint8_t>()[i] = static_cast<uint8_t>(bits);
      label.data.as<uint8_t>()[i] = static_cast<uint8_t>((bits >> 8) % 3);
    }
    write_volume((folder_ / "images" / concat("case", number, ".npy")).string(), image);
    write_volume((folder_ / "labels" / concat("case", number, ".npy")).string(), label);
  }

  TrainingSource source(const char* placement) {
    options_.data.placement = placement;
    return training_source({store_, options_, 6, 2, 2, at::Device(at::kCUDA, 0), ""});
  }

  // Without a word of the GPU's own in between: many batches are under way at once.
  void expect_host_batches(const TrainingSource& on_gpu, int batches) {
    const auto pipeline = training_pipeline(store_, options_, 6, 2, 2);
    const BatchSource on_host = source_of(*pipeline, at::Device(at::kCUDA, 0));
    StageTimes times;
    for (int i = 0; i < batches; ++i) {
      const DeviceBatch a = on_gpu.next(times), b = on_host(times);
      ASSERT_EQ(a.samples.front().sample, b.samples.front().sample);
      EXPECT_TRUE(at::equal(a.targets.label, b.targets.label)) << i;
      const double apart = (a.image.to(at::kFloat) - b.image.to(at::kFloat)).abs().max().item<double>();
      EXPECT_LT(apart, options_.data.patch_type == "float32" ? 1e-4 : 0.1) << i;
      EXPECT_EQ(a.image.strides(), b.image.strides());
      ASSERT_EQ(a.targets.extra.size(), b.targets.extra.size());
      for (const auto& [name, tensor] : a.targets.extra) EXPECT_TRUE(at::equal(tensor, b.targets.extra.at(name)));
    }
  }

  fs::path folder_;
  Options options_;
  std::shared_ptr<Store> store_;
};

TEST_F(DeviceSourceTest, ResidentVolumesGiveTheHostsBatches) {
  const TrainingSource data = source("auto");
  EXPECT_EQ(data.placement.tier, "gpu") << data.placement.said;
  expect_host_batches(data, 40);
}

TEST_F(DeviceSourceTest, BoxesGiveTheHostsBatches) {
  for (const char* placement : {"host", "disk"}) expect_host_batches(source(placement), 40);
}

TEST_F(DeviceSourceTest, TypesAndLayoutsAreTheRecipes) {
  options_.data.patch_type = "bfloat16";
  options_.data.layout = "ndhwc";
  options_.data.images = {"images/*.npy", "images/{id}.npy"};
  ThreadPool pool(2);
  store_ = std::make_shared<Store>(make_dataset(options_.data, 0, 1), options_.data, pool);
  expect_host_batches(source("gpu"), 10);
}

// Two channels, which move, and then all that the recipe does to them.
TEST_F(DeviceSourceTest, SeveralChannelsAreWrittenAsTheNetworkReadsThem) {
  options_.data.images = {"images/*.npy", "images/{id}.npy"};
  options_.training.precision = "bf16-mixed";
  options_.model.filters = {8, 16};
  ThreadPool pool(2);
  store_ = std::make_shared<Store>(make_dataset(options_.data, 0, 1), options_.data, pool);
  const at::Device gpu(at::kCUDA, 0);
  const Learner learner = make_learner(options_, *store_, gpu);
  for (const bool augmented : {false, true}) {
    options_.augmentation.enabled = augmented;
    const TrainingSource data = training_source({store_, options_, 6, 2, 2, gpu, "", &learner});
    const auto pipeline = training_pipeline(store_, options_, 6, 2, 2);
    const BatchSource on_host = source_of(*pipeline, gpu);
    StageTimes times;
    for (int i = 0; i < 10; ++i) {
      const DeviceBatch a = data.next(times), b = on_host(times);
      ASSERT_EQ(a.image.scalar_type(), at::kBFloat16);
      ASSERT_TRUE(a.image.is_contiguous(at::MemoryFormat::ChannelsLast3d));
      const at::Tensor expected = b.image.to(at::kBFloat16);
      if (augmented)
        EXPECT_LT((a.image.to(at::kFloat) - expected.to(at::kFloat)).abs().max().item<double>(), 0.1) << i;
      else
        EXPECT_TRUE(at::equal(a.image, expected)) << i;
      EXPECT_TRUE(at::equal(a.targets.label, b.targets.label)) << i;
    }
  }
}

TEST_F(DeviceSourceTest, TargetsAreMadeFromTheHostsLabel) {
  LossTerm term;
  term.name = "skeleton_recall";
  options_.loss.terms = {term};
  expect_host_batches(source("gpu"), 6);
}

// The scroll recipe's patch: how quickly batches come when nothing else runs, and what the caller's thread pays.
TEST_F(DeviceSourceTest, DISABLED_TimeOfABatch) {
  for (int i = 0; i < 4; ++i) write_case(i, {160, 224, 224});
  options_.data.patch_size = {72, 136, 136};
  ThreadPool pool(8);
  store_ = std::make_shared<Store>(make_dataset(options_.data, 0, 1), options_.data, pool);
  for (const char* placement : {"gpu", "host"}) {
    options_.data.placement = placement;
    const TrainingSource data = training_source({store_, options_, 0, 2, 12, at::Device(at::kCUDA, 0), ""});
    StageTimes times;
    constexpr int kBatches = 60;
    for (int i = 0; i < 10; ++i) data.next(times);
    torch::cuda::synchronize();
    times = {};
    const auto start = Clock::now();
    for (int i = 0; i < kBatches; ++i) data.next(times);
    torch::cuda::synchronize();
    std::cout << "placement " << placement << ": " << 1e3 * seconds_since(start) / kBatches
              << " ms a batch of 2x72x136x136, caller " << 1e3 * times[Stage::kTransfer] / kBatches << " ms, waits "
              << 1e3 * times[Stage::kDataWait] / kBatches << " ms\n";
  }
}

TEST_F(DeviceSourceTest, ABatchStaysWhileTheNextIsMade) {
  const TrainingSource data = source("gpu");
  StageTimes times;
  const DeviceBatch first = data.next(times);
  const at::Tensor copy = first.image.clone();
  torch::cuda::synchronize();
  EXPECT_TRUE(at::equal(copy, first.image));
  const DeviceBatch second = data.next(times);
  EXPECT_NE(first.image.data_ptr(), second.image.data_ptr());
}

TEST_F(DeviceSourceTest, WhatTermsWithADelayKeepStays) {
  for (const char* placement : {"gpu", "host"}) {
    const TrainingSource data = source(placement);
    StageTimes times;
    const DeviceBatch first = data.next(times);
    const at::Tensor image = first.image.cpu(), label = first.targets.label.cpu();
    KeptBatches kept;
    kept.keep(0, first, {});
    for (int i = 0; i < 4; ++i) data.next(times);
    torch::cuda::synchronize();
    const DeviceBatch& later = kept.all().front().batch;
    EXPECT_TRUE(at::equal(later.image.cpu(), image)) << placement;
    EXPECT_TRUE(at::equal(later.targets.label.cpu(), label)) << placement;
  }
}

}  // namespace
}  // namespace vox
