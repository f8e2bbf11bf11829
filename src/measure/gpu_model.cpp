#include "measure/gpu_model.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"

namespace vox {
namespace {

using ops::LayerRecord;

constexpr double kFewestChannels = 8;    // tensor cores take channels by eight
constexpr double kSummedTogether = 32;   // channels that cuDNN's kernels sum over at least
constexpr double kIssuedTflops = 4.095;  // half precision, for a multiprocessor and GHz: the peak of Hopper
constexpr double kKernelsOfLayer = 12;   // with its norm, forward and backward
constexpr double kKernelsBesides = 20;   // losses and optimizer

double elements_of(const LayerRecord& layer) {
  double elements = 1;
  for (const int64_t size : layer.output) elements *= static_cast<double>(size);
  return elements;
}

struct Pass {
  double forward_ms = 0, backward_ms = 0;
  double ms() const { return forward_ms + backward_ms; }
};

class LayerTimes {
 public:
  LayerTimes(const GpuWork& work, const GpuSpec& gpu, const Efficiencies& parts)
      : parts_(parts), half_(work.format == WorkFormat::kHalf || work.format == WorkFormat::kBFloat) {
    const double peak = half_ ? gpu.half_tflops : work.format == WorkFormat::kTf32 ? gpu.tf32_tflops : gpu.float_tflops;
    own_allowed_ = work.own_kernels && gpu.hopper && work.format == WorkFormat::kBFloat;
    const double layout = half_ ? 1 : parts.channels_first;
    flops_per_ms_ = 1e9 * peak * layout;
    bytes_per_ms_ = 1e6 * gpu.bandwidth_gb_s * parts.bandwidth * layout;
    const double issued = kIssuedTflops * gpu.multiprocessors * gpu.boost_ghz;
    const bool tensor_cores = work.format != WorkFormat::kFloat;
    issued_flops_per_ms_ = tensor_cores ? 1e9 * issued * layout * peak / gpu.half_tflops : INFINITY;
    plain_flops_per_ms_ = 1e9 * gpu.float_tflops * layout;
  }

  double pass_ms(double bytes) const { return bytes / bytes_per_ms_; }
  double element() const { return half_ ? 2 : 4; }

  // A convolution with what its norm reads and writes.
  Pass layer(const LayerRecord& layer, bool reads_image, bool* own) const {
    Pass cudnn = convolution(layer, reads_image, false);
    add_passes(cudnn, layer, false);
    *own = false;
    if (!takes_own_kernel(layer, reads_image)) return cudnn;
    Pass ours = convolution(layer, reads_image, true);
    add_passes(ours, layer, true);
    // Where it is not worth it, the program takes cuDNN's, for which the input is written out first.
    cudnn.forward_ms += pass_ms(2 * element() * static_cast<double>(layer.input));
    *own = ours.ms() <= cudnn.ms();
    return *own ? ours : cudnn;
  }

 private:
  bool takes_own_kernel(const LayerRecord& layer, bool reads_image) const {
    const bool plain = layer.taps == 27 && !layer.strided && layer.groups == 1;
    const bool of_one = plain && layer.in_channels == 1 && layer.output[1] == 32;
    const bool first = of_one || (reads_image && ops::channels_of_zeros(layer) > 0);
    const bool everywhere = half_ && layer.own_kernel && layer.taps != 27;  // heads and 2x2x2 transposed convolutions
    return everywhere || (own_allowed_ && (layer.own_kernel || first));
  }

  // `columns`: channels that a product makes; `summed`: channels that it sums over.
  double cudnn_ms(const LayerRecord& layer, double columns, double summed) const {
    const double flops = 2 * layer.macs;
    const bool depthwise = layer.groups > 1 && layer.groups == layer.in_channels;
    if (depthwise) return flops / (plain_flops_per_ms_ * parts_.depthwise);
    const double padded = flops * std::max(1.0, kSummedTogether / summed) * std::max(1.0, kFewestChannels / columns);
    const double wide = std::min(1.0, std::pow(std::max(columns, kFewestChannels) / 128, parts_.few_channels));
    const double rate = std::min(flops_per_ms_, issued_flops_per_ms_ * wide);
    return padded / (rate * parts_.cudnn * (layer.strided || layer.transposed ? parts_.strided : 1));
  }

  Pass convolution(const LayerRecord& layer, bool reads_image, bool own) const {
    const auto groups = static_cast<double>(layer.groups);
    // A stride over the image is folded into its channels: blocks of 2x2x2 voxels.
    const double folded = half_ && reads_image && layer.strided && !layer.transposed ? 8 : 1;
    const double out = static_cast<double>(layer.output[1]) / groups,
                 in = folded * static_cast<double>(layer.in_channels) / groups;
    const double bytes = element() * (elements_of(layer) + static_cast<double>(layer.input + layer.parameters));
    const auto time = [&](double columns, double summed) {
      const double filled =
          1 + static_cast<double>(ops::channels_of_zeros(layer)) / static_cast<double>(layer.in_channels);
      const double compute =
          own ? filled * 2 * layer.macs / (flops_per_ms_ * parts_.own) : cudnn_ms(layer, columns, summed);
      return std::max(compute, pass_ms(bytes));
    };
    Pass pass{.forward_ms = time(out, in), .backward_ms = time(std::min(in, out), std::max(in, out))};
    if (!reads_image) pass.backward_ms += time(in, out);
    return pass;
  }

  void add_passes(Pass& pass, const LayerRecord& layer, bool own) const {
    const double output = elements_of(layer), joined = own ? 0 : static_cast<double>(layer.joined),
                 norm = layer.has_norm ? output : 0;
    // Norms are applied where they are read, or with cuDNN alone by a pass of their own.
    double forward = own_allowed_ ? 2 * static_cast<double>(layer.written) : 2 * joined + 2 * norm;
    if (!own) forward += norm;                // the moments
    double backward = 2 * joined + 5 * norm;  // two reads for the sums, two reads and a write
    if (!half_) {                             // the activation is a pass of its own
      forward += 2 * output;
      backward += 3 * output;
    }
    pass.forward_ms += pass_ms(element() * forward);
    pass.backward_ms += pass_ms(element() * backward);
  }

  Efficiencies parts_;
  bool half_ = false, own_allowed_ = false;
  double flops_per_ms_ = 0, issued_flops_per_ms_ = 0, plain_flops_per_ms_ = 0, bytes_per_ms_ = 0;
};

}  // namespace

const std::vector<GpuSpec>& known_gpus() {
  static const std::vector<GpuSpec> gpus{
      {"rtx3090", "GeForce RTX 3090", 23.6, 71, 35.6, 35.6, 936, 82, 1.695, false},
      {"rtx4090", "GeForce RTX 4090", 23.6, 165.2, 82.6, 82.6, 1008, 128, 2.52, false},
      {"a100-40", "A100 40 GB", 39.5, 312, 156, 19.5, 1555, 108, 1.41, false},
      {"a100-80", "A100 80 GB SXM", 79.2, 312, 156, 19.5, 2039, 108, 1.41, false},
      {"h100", "H100 80 GB SXM", 79.1, 989.4, 494.7, 66.9, 3350, 132, 1.83, true},
      {"h200", "H200 141 GB SXM", 139.8, 989.4, 494.7, 66.9, 4800, 132, 1.83, true},
  };
  return gpus;
}

const GpuSpec& find_gpu(const std::string& name) {
  std::vector<std::string> names;
  for (const GpuSpec& gpu : known_gpus()) {
    if (gpu.name == lower(name)) return gpu;
    names.push_back(gpu.name);
  }
  throw Error(concat("--on: no GPU is known as \"", printable(name), "\"; there is ", join(names, ", ")));
}

const Efficiencies& calibrated() {
  static const Efficiencies parts{.own = 0.68,
                                  .cudnn = 0.73,
                                  .few_channels = 0.96,
                                  .strided = 0.9,
                                  .bandwidth = 0.67,
                                  .depthwise = 0.1,
                                  .channels_first = 0.58,
                                  .kernel_us = 3.8};
  return parts;
}

StepPrediction predict_step(const GpuWork& work, const GpuSpec& gpu, const Efficiencies& parts) {
  const LayerTimes model(work, gpu, parts);
  StepPrediction step;
  for (const LayerRecord& layer : work.layers) {
    const LayerRecord& first = work.layers.front();
    const bool reads_image = layer.input == first.input && layer.in_channels == first.in_channels;
    bool own = false;
    const Pass pass = model.layer(layer, reads_image, &own);
    const double launch_ms = 1e-3 * kKernelsOfLayer * parts.kernel_us;
    step.forward_ms += pass.forward_ms + launch_ms / 3;
    step.backward_ms += pass.backward_ms + launch_ms * 2 / 3;
    step.layers.push_back({layer.name, pass.ms() + launch_ms, own});
  }
  const double besides_ms = model.pass_ms(model.element() * work.moved_elements);
  step.forward_ms += besides_ms / 2;
  step.backward_ms += besides_ms / 2;
  if (work.recomputes) step.backward_ms += step.forward_ms;
  step.loss_ms = model.pass_ms(work.loss_bytes) + 1e-3 * kKernelsBesides * parts.kernel_us;
  const auto times = static_cast<double>(std::max<int64_t>(1, work.accumulation));
  step.forward_ms *= times;
  step.backward_ms *= times;
  step.loss_ms *= times;
  step.optimizer_ms = model.pass_ms(work.optimizer_bytes);
  return step;
}

}  // namespace vox
