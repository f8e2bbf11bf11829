#include "train/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/thread_pool.h"
#include "train/learner.h"
#include "volume/store.h"

namespace vox {
namespace {

using ::testing::HasSubstr;

// Knows the label, which is the image here, and says so in channel 1. The channels around it are surer of other things.
class Knowing : public Network {
 public:
  explicit Knowing(std::unique_ptr<Network> inner) : inner_(std::move(inner)) { parameters_ = inner_->parameters(); }
  std::vector<at::Tensor> forward(const at::Tensor& image, const ForwardContext&) override {
    largest_ = std::max(largest_, image.size(0));
    const at::Tensor known = (image > image.mean()).to(at::kFloat) * 20 - 10, sure = at::full_like(known, 30);
    return {at::cat({sure, known, -sure}, 1)};
  }
  Extent3 divisor() const override { return inner_->divisor(); }
  int64_t largest() const { return largest_; }  // batch

 private:
  int64_t largest_ = 0;
  std::unique_ptr<Network> inner_;
};

LossTerm term_of(const std::string& head, const std::string& target) {
  LossTerm term;
  term.name = "bce";
  term.head = head;
  term.target = target;
  return term;
}

class Validate : public ::testing::Test {
 protected:
  Validate() : folder_(fs::temp_directory_path() / concat("voxloom-validate-", getpid())) {
    for (const char* kind : {"images", "labels"})
      for (const char* name : {"a.npy", "b.npy"}) write_array(folder_ / kind / name);
    options_.data.root = folder_.string();
    options_.data.images = {"images/*.npy"};
    options_.data.label = "labels/{id}.npy";
    options_.data.cache_dir = (folder_ / "cache").string();
    options_.data.split = "explicit";
    options_.data.train = {"a"};
    options_.data.validation = {"b"};
    options_.data.patch_size = {8, 8, 8};
    options_.inference.window = {8, 8, 8};
    options_.validation.patches = 4;
    options_.model.filters = {4, 4};
    options_.model.heads = {{"border", 1}, {"body", 1}, {"other", 1}};
    options_.loss.terms = {term_of("border", "boundary"), term_of("body", ""), term_of("other", "boundary")};
  }
  ~Validate() override { fs::remove_all(folder_); }

  static void write_array(const fs::path& path) {
    std::string header = "{'descr': '|u1', 'fortran_order': False, 'shape': (16, 16, 16), }";
    header.resize(117, ' ');
    std::string values(16 * 16 * 16, '\0');
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<char>(i / 2 % 2);
    fs::create_directories(path.parent_path());
    write_file(path, std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header + "\n" + values);
  }

  ValidationResult validated(int64_t micro_batch = 0, int64_t at_once = 4) const {
    ThreadPool pool(1);
    const auto store = std::make_shared<Store>(make_dataset(options_.data, 0, 1), options_.data, pool);
    Learner learner = make_learner(options_, *store, at::kCPU);
    Knowing network(std::move(learner.network));
    ValidationRequest request{network, *learner.loss, store, options_};
    request.micro_batch = micro_batch;
    const ValidationResult result = validate(request);
    EXPECT_LE(network.largest(), at_once);
    return result;
  }

  fs::path folder_;
  Options options_;
};

TEST_F(Validate, TakesNoMoreSamplesAtOnceThanFitInTraining) {
  options_.data.batch_size = 4;
  const ValidationResult whole = validated(0, 4), parts = validated(3, 3);
  EXPECT_GT(whole.scores.size(), 4u);
  EXPECT_EQ(whole.scores, parts.scores);
}

// The network gives -10 and 10: as logits no voxel is as likely as that, as the values 0 and 1 half of them are 1.
TEST_F(Validate, CutsValuesAtTheThresholdItself) {
  options_.loss.terms = {term_of("body", "foreground")};
  options_.inference.threshold = 0.99999;
  EXPECT_LT(validated().at("dice").value(), 0.1);
  options_.loss.terms.front().name = "mse";
  EXPECT_EQ(validated().at("dice"), 1.0);
}

TEST_F(Validate, JudgesTheChannelsThatAreComparedWithTheLabel) {
  for (const char* mode : {"patches", "sliding_window"}) {
    options_.validation.mode = mode;
    EXPECT_EQ(validated().at("dice"), 1.0) << mode;
    EXPECT_EQ(validated().at("iou"), 1.0) << mode;
  }
}

TEST_F(Validate, HasOnlyALossWhereNoTermLooksAtTheLabel) {
  options_.loss.terms[1].target = "boundary";
  const ValidationResult result = validated();
  EXPECT_TRUE(result.at("loss").has_value());
  EXPECT_TRUE(result.at("loss.bce_2").has_value());
  EXPECT_FALSE(result.at("dice").has_value());
  const auto refused = [&] {
    try {
      check_metric(options_, {"bce", "bce_2", "bce_3"});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refused(), HasSubstr("known here: loss, loss.bce, loss.bce_2, loss.bce_3"));
  options_.validation.metric = "loss";
  EXPECT_EQ(refused(), "");
  options_.validation.mode = "sliding_window";
  EXPECT_THAT(refused(), HasSubstr("set validation.mode to patches"));
}

}  // namespace
}  // namespace vox
