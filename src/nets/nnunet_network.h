// What nnU-Net's networks share (dynamic-network-architectures): blocks of convolution, dropout, norm and activation,
// and the decoder, whose concatenations have the upsampled half first. Parameter names are the original's.
#pragma once

#include "nets/layers.h"
#include "nets/stages.h"

namespace vox {

class NnunetNetwork : public LayerNetwork {
 public:
  std::vector<at::Tensor> forward(const at::Tensor& image, const ForwardContext& context) override;
  Extent3 divisor() const override { return divisor_of(plan_); }

 protected:
  NnunetNetwork(const ModelOptions& options, uint64_t seed, const StageDefaults& defaults);

  struct BlockSpec {
    int64_t in = 1, out = 1;
    ops::ConvGeometry geometry{};
    bool drops = true, biased = true, activates = true;
  };
  Block add_block(const std::string& name, const BlockSpec& spec);
  void add_decoder();  // once the encoder is there

  // What each stage makes of the image, the finest first.
  virtual std::vector<ops::Feature> encode(const ops::Feature& image, const ForwardContext& context) const = 0;
  ops::Feature run_blocks(ops::Feature input, const std::vector<Block>& blocks, const ForwardContext& context) const;

  std::vector<StagePlan> plan_;
  NormSpec norm_;
  ActivationSpec activation_;

 private:
  struct DecoderStage {
    Conv up, head;
    std::vector<Block> convs;
    ParameterRange range;
  };
  void add_decoder_stage(size_t level, int64_t convs);
  Conv add_head(const std::string& name, int64_t in);
  Conv add_up(const std::string& name, int64_t in, int64_t out, const Extent3& stride);
  ops::Feature run_up(const DecoderStage& stage, const ops::Feature& below, const Extent3& factor) const;

  std::vector<DecoderStage> decoder_;  // the lowest first
};

}  // namespace vox
