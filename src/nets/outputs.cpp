#include "nets/outputs.h"

#include <torch/torch.h>

#include "base/error.h"

namespace vox {
namespace {

class Adjusted : public Network {
 public:
  Adjusted(std::unique_ptr<Network> inner, const ModelOptions& options)
      : inner_(std::move(inner)), scale_(options.output_scale), added_channel_(options.added_channel) {
    in_channels_ = options.in_channels;
  }

  std::vector<at::Tensor> forward(const at::Tensor& image, const ForwardContext& context) override {
    std::vector<at::Tensor> outputs = inner_->forward(image, context);
    for (at::Tensor& output : outputs) {
      if (added_channel_ >= 0) output = output + added_to(output, image);
      if (scale_ != 1) output = output * scale_;
    }
    return outputs;
  }
  Extent3 divisor() const override { return inner_->divisor(); }
  LayerTable layer_table(const Extent3& patch, int64_t samples) override { return inner_->layer_table(patch, samples); }
  void require_divisible(const Extent3& patch) const override { inner_->require_divisible(patch); }
  std::string norm() const override { return inner_->norm(); }
  std::string activation() const override { return inner_->activation(); }
  ParameterSet& parameters() override { return inner_->parameters(); }
  const ParameterSet& parameters() const override { return inner_->parameters(); }

 private:
  // Means of it where the output is coarser.
  at::Tensor added_to(const at::Tensor& output, const at::Tensor& image) const {
    const at::Tensor channel = image.narrow(1, added_channel_, 1).to(output.scalar_type());
    const at::IntArrayRef size = output.sizes().slice(2);
    return size == channel.sizes().slice(2) ? channel : at::adaptive_avg_pool3d(channel, size);
  }

  std::unique_ptr<Network> inner_;
  double scale_;
  int64_t added_channel_;
};

}  // namespace

std::unique_ptr<Network> with_outputs_as_asked(std::unique_ptr<Network> network, const ModelOptions& options) {
  VOX_CHECK(options.added_channel < options.in_channels, "model.added_channel is ", options.added_channel,
            ", but the image has ", options.in_channels, " channels, which are counted from 0");
  if (options.output_scale == 1 && options.added_channel < 0) return network;
  return std::make_unique<Adjusted>(std::move(network), options);
}

}  // namespace vox
