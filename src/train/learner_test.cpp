#include "train/learner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/thread_pool.h"
#include "volume/store.h"

namespace vox {
namespace {

using ::testing::HasSubstr;

// A network whose device is full for more than `room` samples.
class Hungry : public Network {
 public:
  Hungry(std::unique_ptr<Network> inner, int64_t room) : inner_(std::move(inner)), room_(room) {
    parameters_ = inner_->parameters();
  }
  std::vector<at::Tensor> forward(const at::Tensor& image, const ForwardContext& context) override {
    asked.push_back(image.size(0));
    if (image.size(0) > room_) C10_THROW_ERROR(OutOfMemoryError, "the device is full");
    return inner_->forward(image, context);
  }
  Extent3 divisor() const override { return inner_->divisor(); }
  std::vector<int64_t> asked;

 private:
  std::unique_ptr<Network> inner_;
  int64_t room_;
};

class OutOfMemory : public ::testing::Test {
 protected:
  OutOfMemory() : folder_(fs::temp_directory_path() / concat("voxloom-learner-", getpid())) {
    for (const char* kind : {"images", "labels"}) write_array(folder_ / kind / "case.npy");
    options_.data.root = folder_.string();
    options_.data.images = {"images/*.npy"};
    options_.data.label = "labels/{id}.npy";
    options_.data.cache_dir = (folder_ / "cache").string();
    options_.data.split = "none";
    options_.data.patch_size = {8, 8, 8};
    options_.data.batch_size = 8;
    options_.model.filters = {4, 4};
    LossTerm term;
    term.name = "bce";
    options_.loss.terms = {term};
  }
  ~OutOfMemory() override { fs::remove_all(folder_); }

  static void write_array(const fs::path& path, size_t values_in_use = 2) {
    std::string header = "{'descr': '|u1', 'fortran_order': False, 'shape': (16, 16, 16), }";
    header.resize(117, ' ');
    std::string values(16 * 16 * 16, '\0');
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<char>(i % values_in_use);
    fs::create_directories(path.parent_path());
    write_file(path, std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header + "\n" + values);
  }

  WarmUp warm_up_with_room_for(int64_t room, int64_t end_step = kNoEnd) {
    ThreadPool pool(1);
    const auto store = std::make_shared<Store>(make_dataset(options_.data, 0, 1), options_.data, pool);
    Learner learner = make_learner(options_, *store, at::kCPU);
    auto hungry = std::make_unique<Hungry>(std::move(learner.network), room);
    Hungry& network = *hungry;
    learner.network = std::move(hungry);
    const WarmUp result = warm_up({learner, store, options_, at::kCPU, 0, options_.data.batch_size, 1, end_step});
    asked_ = network.asked;
    computed_.clear();
    for (size_t i = 0; i < options_.loss.terms.size(); ++i)
      computed_.push_back(learner.loss->take_seconds(i).has_value());
    return result;
  }

  std::string error_with_room_for(int64_t room) {
    try {
      warm_up_with_room_for(room);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  fs::path folder_;
  Options options_;
  std::vector<int64_t> asked_;
  std::vector<bool> computed_;  // which terms
};

TEST_F(OutOfMemory, HalvesTheMicroBatchUntilItFits) {
  const WarmUp result = warm_up_with_room_for(2);
  EXPECT_EQ(result.micro_batch, 2);
  EXPECT_THAT(result.shrunk, HasSubstr("4 parts of 2"));
  EXPECT_THAT(result.shrunk, HasSubstr("the result is the same"));
  EXPECT_THAT(asked_, ::testing::ElementsAre(8, 4, 2, 2));
  EXPECT_GT(result.step_s, 0);
}

TEST_F(OutOfMemory, SaysNothingWhereTheBatchFits) {
  const WarmUp result = warm_up_with_room_for(8);
  EXPECT_EQ(result.micro_batch, 8);
  EXPECT_TRUE(result.shrunk.empty());
}

TEST_F(OutOfMemory, TermsThatStartBeforeTheEndAreRehearsedToo) {
  options_.loss.terms.push_back(options_.loss.terms.front());
  options_.loss.terms.back().start_step = 1000;
  options_.loss.terms.back().every = 16;
  warm_up_with_room_for(8);
  EXPECT_THAT(computed_, ::testing::ElementsAre(true, true));
  warm_up_with_room_for(8, 1001);
  EXPECT_THAT(computed_, ::testing::ElementsAre(true, true));
  warm_up_with_room_for(8, 1000);  // the run ends before it starts
  EXPECT_THAT(computed_, ::testing::ElementsAre(true, false));
}

TEST_F(OutOfMemory, IsAnErrorWhereASmallerBatchWouldLearnOtherwise) {
  options_.model.norm = "batch";
  EXPECT_THAT(error_with_room_for(4), HasSubstr("batch norm would learn otherwise"));
  options_.training.on_oom = "shrink";
  const WarmUp shrunk = warm_up_with_room_for(4);
  EXPECT_EQ(shrunk.micro_batch, 4);
  EXPECT_THAT(shrunk.shrunk, HasSubstr("batch norm learns otherwise"));
  options_.training.on_oom = "fail";
  EXPECT_THAT(error_with_room_for(4), HasSubstr("does not fit into the memory"));
}

TEST_F(OutOfMemory, IsAnErrorWhereNotEvenOneSampleFits) {
  EXPECT_THAT(error_with_room_for(0), HasSubstr("one sample of patch 8x8x8"));
}

class MakeLearner : public OutOfMemory {};

TEST_F(MakeLearner, LabelsBeyondTheChannelsAreRefusedBeforeTheFirstStep) {
  options_.model.out_channels = 2;
  write_array(folder_ / "labels" / "case.npy", 3);
  ThreadPool pool(1);
  const auto made = [&] {
    const Store store(make_dataset(options_.data, 0, 1), options_.data, pool);
    make_learner(options_, store, at::kCPU);
  };
  try {
    made();
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("case case: the label has class 2 but the network has 2 channels for it"));
  }
  options_.data.ignore_label = 2;
  EXPECT_NO_THROW(made());
}

TEST(ResolveModel, ChannelsAreTheLabelsThatAreNamedElseUpToTheLargest) {
  Options options;
  const auto channels = [&](std::vector<int64_t> named, const std::vector<int64_t>& found) {
    options.data.labels = std::move(named);
    return resolve_model(options, 1, found).out_channels;
  };
  EXPECT_EQ(channels({}, {0, 1}), 1);
  EXPECT_EQ(channels({}, {0, 4}), 1);
  EXPECT_EQ(channels({}, {0, 1, 4}), 5);
  EXPECT_EQ(channels({0, 10, 205}, {0, 10}), 3);
  EXPECT_EQ(channels({0, 255}, {0, 255}), 1);
  options.data.ignore_label = 205;
  EXPECT_EQ(channels({0, 10, 205}, {0, 10}), 1);
}

}  // namespace
}  // namespace vox
