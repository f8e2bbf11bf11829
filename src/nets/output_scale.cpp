#include "nets/output_scale.h"

#include <torch/torch.h>

namespace vox {
namespace {

class Scaled : public Network {
 public:
  Scaled(std::unique_ptr<Network> inner, double factor) : inner_(std::move(inner)), factor_(factor) {}

  std::vector<at::Tensor> forward(const at::Tensor& image, const ForwardContext& context) override {
    std::vector<at::Tensor> outputs = inner_->forward(image, context);
    for (at::Tensor& output : outputs) output = output * factor_;
    return outputs;
  }
  Extent3 divisor() const override { return inner_->divisor(); }
  LayerTable layer_table(const Extent3& patch, int64_t samples) override { return inner_->layer_table(patch, samples); }
  void require_divisible(const Extent3& patch) const override { inner_->require_divisible(patch); }
  ParameterSet& parameters() override { return inner_->parameters(); }
  const ParameterSet& parameters() const override { return inner_->parameters(); }

 private:
  std::unique_ptr<Network> inner_;
  double factor_;
};

}  // namespace

std::unique_ptr<Network> scaled(std::unique_ptr<Network> network, double factor) {
  if (factor == 1) return network;
  return std::make_unique<Scaled>(std::move(network), factor);
}

}  // namespace vox
