#include "pipeline/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <thread>

#include "base/drawn_seed.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/random.h"
#include "base/span.h"
#include "base/thread_pool.h"
#include "io/format.h"
#include "pipeline/slots.h"

namespace vox {
namespace {

class PipelineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / concat("vox_pipeline_", getpid());
    for (int i = 0; i < 3; ++i) write_case(i, {20 + i, 24, 28});
    data_.root = folder_.string();
    data_.images = {"images/*.npy"};
    data_.label = "labels/{id}.npy";
    data_.cache_dir = (folder_ / "cache").string();
    data_.split = "none";
    data_.patch_size = {8, 12, 10};
    data_.ignore_label = 2;
    augmentation_.rotate.enabled = augmentation_.flip.enabled = augmentation_.noise.enabled = true;
  }
  void TearDown() override { fs::remove_all(folder_); }

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

  std::shared_ptr<Store> make_store() const {
    ThreadPool pool(2);
    return std::make_shared<Store>(make_dataset(data_, 0, 1), data_, pool);
  }

  static uint64_t hash_of(const Batch& batch) {
    ContentHash hash;
    for (const auto& [name, array] : batch.arrays)
      hash.add(name).add(std::span<const std::byte>(array.data, static_cast<size_t>(array.bytes())));
    return hash.value();
  }

  std::vector<uint64_t> hashes(const PipelineOptions& options) const {
    Pipeline pipeline(make_store(), data_, augmentation_, options);
    std::vector<uint64_t> all;
    Batch batch;
    while (pipeline.next(batch)) all.push_back(hash_of(batch));
    return all;
  }

  fs::path folder_;
  DataOptions data_;
  AugmentationOptions augmentation_;
};

TEST_F(PipelineTest, BatchesDependOnSeedAndStepAlone) {
  const std::vector<uint64_t> one = hashes({.seed = 3, .batches = 20, .threads = 1});
  ASSERT_EQ(one.size(), 20u);
  EXPECT_EQ(one, hashes({.seed = 3, .batches = 20, .threads = 2, .prefetch = 5}));
  EXPECT_EQ(one, hashes({.seed = 3, .batches = 20, .threads = 7, .prefetch = 1}));
  EXPECT_NE(one, hashes({.seed = 4, .batches = 20, .threads = 1}));
  const std::vector<uint64_t> late = hashes({.seed = 3, .first_sample = 24, .batches = 8, .threads = 3});
  EXPECT_THAT(late, ::testing::ElementsAreArray(one.begin() + 12, one.end()));
}

TEST_F(PipelineTest, MicroBatchesAreTheLargeBatchInPieces) {
  Pipeline large(make_store(), data_, augmentation_, {.seed = 3, .batch_size = 4, .batches = 3});
  Pipeline small(make_store(), data_, augmentation_, {.seed = 3, .batch_size = 2, .batches = 6});
  Batch whole, half;
  for (int step = 0; step < 3; ++step) {
    ASSERT_TRUE(large.next(whole));
    const BatchArray& image = whole.arrays.at("image");
    for (int part = 0; part < 2; ++part) {
      ASSERT_TRUE(small.next(half));
      EXPECT_EQ(0, std::memcmp(image.data + part * image.bytes() / 2, half.arrays.at("image").data,
                               static_cast<size_t>(image.bytes() / 2)));
    }
  }
}

TEST_F(PipelineTest, LayoutsAndTypesHoldTheSameValues) {
  data_.images = {"images/*.npy", "images/{id}.npy"};
  Pipeline plain(make_store(), data_, augmentation_, {.seed = 1, .batches = 1});
  data_.layout = "ndhwc";
  data_.patch_type = "bfloat16";
  Pipeline packed(make_store(), data_, augmentation_, {.seed = 1, .batches = 1});
  Batch a, b;
  ASSERT_TRUE(plain.next(a) && packed.next(b));
  const auto* floats = reinterpret_cast<const float*>(a.arrays.at("image").data);
  const auto* halves = reinterpret_cast<const BFloat16*>(b.arrays.at("image").data);
  const int64_t voxels = data_.patch_size.voxels();
  EXPECT_TRUE(b.arrays.at("image").channels_last);
  for (int64_t n = 0; n < 2; ++n)
    for (int64_t c = 0; c < 2; ++c)
      for (int64_t i = 0; i < voxels; ++i)
        ASSERT_EQ(to_bfloat16(floats[(n * 2 + c) * voxels + i]).bits, halves[(n * voxels + i) * 2 + c].bits);
}

TEST_F(PipelineTest, OutsideVoxelsAreIgnoredInTheLabel) {
  data_.patch_size = {32, 32, 32};  // larger than the volumes
  augmentation_.enabled = false;
  Pipeline pipeline(make_store(), data_, augmentation_, {.seed = 1, .batches = 1});
  Batch batch;
  ASSERT_TRUE(pipeline.next(batch));
  EXPECT_EQ(static_cast<uint8_t>(batch.arrays.at("label").data[0]), 2);
  EXPECT_EQ(reinterpret_cast<const float*>(batch.arrays.at("image").data)[0], 0.0f);
}

TEST_F(PipelineTest, EveryPaddingServesPatchesAtAndBeyondTheBorder) {
  data_.patch_size = {24, 24, 24};
  augmentation_.shift.enabled = true;
  augmentation_.shift.prob = 1;
  augmentation_.shift.voxels = {-80, 80};  // many patches lie wholly outside
  for (const char* padding : {"constant", "edge", "reflect"}) {
    SCOPED_TRACE(padding);
    data_.padding = padding;
    EXPECT_EQ(hashes({.seed = 5, .batches = 20, .threads = 2}).size(), 20u);
  }
}

TEST_F(PipelineTest, EndsCleanlyAtAnyMomentAndBatchesOutliveIt) {
  const uint64_t seed = drawn_seed();
  SCOPED_TRACE(seed);
  const auto store = make_store();
  for (uint64_t round = 0; round < 30; ++round) {
    Random random(seed, round, kSynthStream);
    Batch kept;
    {
      Pipeline pipeline(store, data_, augmentation_, {.seed = 1, .threads = 1 + static_cast<int>(random.below(4))});
      Batch batch;
      for (int64_t i = random.below(5); i > 0; --i) pipeline.next(batch);
      if (random.chance(0.5)) pipeline.next(kept);
      std::this_thread::sleep_for(std::chrono::microseconds(random.below(2000)));
    }
    if (kept.slot) hash_of(kept);  // under the address sanitizer this reads freed memory if the slot has gone
  }
}

// Threads that wait for the memory of samples which nobody wants any more do not wait long.
TEST_F(PipelineTest, EndsWhileThreadsWaitForMemory) {
  for (int i = 0; i < 3; ++i) write_case(i, {60, 60, 60});
  data_.patch_size = {40, 40, 40};
  data_.cache_gb = 0.0006;  // a few boxes, and not one of image and label for every thread
  augmentation_ = {};
  const auto start = Clock::now();
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Pipeline pipeline(make_store(), data_, augmentation_, {.seed = seed, .threads = 6});
    std::this_thread::sleep_for(std::chrono::milliseconds(seed));
  }
  EXPECT_LT(seconds_since(start), 20);
}

// Six samples at once hold all memory for their images and wait for their labels': some begin again, later.
TEST_F(PipelineTest, ThreadsGiveWayWhereMemoryDoesNotSufficeForAll) {
  for (int i = 0; i < 3; ++i) write_case(i, {60, 60, 60});
  data_.patch_size = {40, 40, 40};
  augmentation_ = {};
  const PipelineOptions many{.seed = 3, .batches = 12, .threads = 6};
  const std::vector<uint64_t> expected = hashes(many);
  data_.cache_gb = 0.0003;
  const auto start = Clock::now();
  EXPECT_EQ(hashes(many), expected);
  EXPECT_LT(seconds_since(start), 20);
}

TEST_F(PipelineTest, AWorkersErrorArrivesWithTheCase) {
  for (int i = 0; i < 3; ++i) write_case(i, {60, 60, 60});
  data_.cache_gb = 0.001;  // less than the volumes: patches are read from files
  const auto store = make_store();
  for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
    if (entry.is_regular_file()) fs::resize_file(entry.path(), 40);
  }
  try {
    Pipeline pipeline(store, data_, augmentation_, {.seed = 1, .batches = 50, .threads = 2});
    Batch batch;
    while (pipeline.next(batch)) {
    }
    FAIL() << "truncated files were read";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("case"));
  }
}

// What a GPU would be told, done by the CPU: the boxes and maps that travel give the batch that the host makes.
TEST_F(PipelineTest, SamplesForTheDeviceGatherToTheSameBatch) {
  augmentation_.noise.enabled = false;
  augmentation_.elastic.enabled = true;
  data_.images = {"images/*.npy", "images/{id}.npy"};
  const BoxMemory memory = [](int64_t bytes) {
    return std::shared_ptr<std::byte>(new std::byte[static_cast<size_t>(bytes)], std::default_delete<std::byte[]>());
  };
  Pipeline host(make_store(), data_, augmentation_, {.seed = 9, .batches = 12});
  Pipeline boxes(
      make_store(), data_, augmentation_,
      {.seed = 9, .batches = 12, .threads = 3, .gather_on = GatherOn::kDeviceFromBoxes, .box_memory = memory});
  Pipeline resident(make_store(), data_, augmentation_, {.seed = 9, .batches = 12, .gather_on = GatherOn::kDevice});
  ASSERT_EQ(boxes.device_arrays().size(), 2u);
  Batch made, told, named;
  while (host.next(made)) {
    ASSERT_TRUE(boxes.next(told) && resident.next(named));
    EXPECT_TRUE(told.arrays.empty() && made.on_device.empty());
    for (size_t place = 0; place < told.on_device.size(); ++place) {
      const DeviceSample& sample = told.on_device[place];
      ASSERT_EQ(sample.gathers.size(), 3u);
      for (size_t i = 0; i < sample.gathers.size(); ++i) {
        const DeviceGather& gather = sample.gathers[i];
        EXPECT_EQ(gather.source, named.on_device[place].gathers[i].source);
        const GatherOutput wanted =
            output_of(made.arrays.at(gather.array), static_cast<int64_t>(place), gather.channel);
        std::vector<std::byte> out(static_cast<size_t>(wanted.extent.voxels() * size_of(wanted.dtype)));
        gather_cpu({out.data(), wanted.dtype, wanted.extent}, gather.box, sample.map, gather.options);
        EXPECT_EQ(0, std::memcmp(out.data(), wanted.data, out.size())) << gather.array;
      }
    }
  }
}

TEST_F(PipelineTest, AnEmptySplitIsASentence) {
  EXPECT_THROW(Pipeline(make_store(), data_, augmentation_, {.split = Split::kValidation}), Error);
}

TEST_F(PipelineTest, StagesCarrySpansWhileRecording) {
  start_recording();
  hashes({.seed = 3, .batches = 3});
  stop_recording();
  std::vector<std::string> names;
  for (const SpanRecord& record : take_spans()) names.push_back(record.name);
  for (const char* name : {"fetch", "gather", "queue_wait"}) EXPECT_THAT(names, ::testing::Contains(name));
}

}  // namespace
}  // namespace vox
