#include "train/step.h"

#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <string>

#include "base/span.h"
#include "train/learner.h"

namespace vox {
namespace {

// Notes when a layer's backward pass begins, beside the spans of the step.
class LayerWatch {
 public:
  LayerWatch() {
    handle_ = at::addGlobalCallback(at::RecordFunctionCallback([](const at::RecordFunction& function) {
                                      if (std::string(function.name()) == "aten::convolution_backward")
                                        record_span("layer", Clock::now(), Clock::now());
                                      return std::unique_ptr<at::ObserverContext>();
                                    }).scopes({at::RecordScope::FUNCTION}));
    start_recording();
  }
  ~LayerWatch() {
    stop_recording();
    at::removeCallback(handle_);
  }

 private:
  at::CallbackHandle handle_;
};

DeviceBatch random_batch() {
  DeviceBatch batch;
  batch.image = at::randn({2, 1, 16, 16, 16});
  batch.targets.label = at::randint(0, 2, {2, 1, 16, 16, 16}, at::kByte);
  batch.samples.resize(2);
  return batch;
}

TEST(StepRunner, TheLossesPartOfTheBackwardPassIsOverBeforeAnyLayers) {
  Options options;
  options.data.patch_size = {16, 16, 16};
  options.model.filters = {4, 8, 8, 8};
  options.model.out_channels = 1;
  options.model.deep_supervision = true;
  torch::manual_seed(3);
  const ModelOptions model = resolve_model(options, 1, {0, 1});
  const std::unique_ptr<Network> network = make_network_on(at::kCPU, model, options.training);
  const LossSet loss(options.loss, options.data, model.out_channels, model.heads);
  Optimizer optimizer(options.training, network->parameters(), parse_precision(options.training.precision));
  StepRunner runner({*network, loss, optimizer, [](StageTimes&) { return random_batch(); }}, {});
  {
    const LayerWatch watch;
    runner.run(0, 0.01);
  }
  const std::vector<SpanRecord> spans = take_spans();
  const auto named = [&](const std::string& name) {
    return std::find_if(spans.begin(), spans.end(), [&](const SpanRecord& span) { return span.name == name; });
  };
  ASSERT_NE(named("loss_backward"), spans.end());
  ASSERT_NE(named("layer"), spans.end());
  EXPECT_LE(named("loss_backward")->end_ns, named("layer")->begin_ns);
}

}  // namespace
}  // namespace vox
