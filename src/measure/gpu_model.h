// The time of a training step on a GPU that is not here: floating point operations and bytes of every layer, counted
// on the meta device, against what the GPU's data sheet promises, of which a part is reached. The parts are a few
// numbers, fitted to steps that were measured on an H200 (gpu_model_test.cpp says how well they fit).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ops/trace.h"

namespace vox {

struct GpuSpec {     // as the data sheet says: dense rates, the boost clock
  std::string name;  // on the command line
  std::string title;
  double memory_gib = 0;  // that a program sees
  double half_tflops = 0, tf32_tflops = 0, float_tflops = 0;
  double bandwidth_gb_s = 0;  // 1e9 bytes
  double multiprocessors = 0, boost_ghz = 0;
  bool hopper = false;  // runs our own convolutions; the others take cuDNN's
};
const std::vector<GpuSpec>& known_gpus();
const GpuSpec& find_gpu(const std::string& name);  // Error names those there are

enum class WorkFormat { kFloat, kTf32, kHalf, kBFloat };

struct GpuWork {  // of one micro-batch
  std::vector<ops::LayerRecord> layers;
  double moved_elements = 0;  // as LayerTable
  double loss_bytes = 0;
  double optimizer_bytes = 0;
  int64_t accumulation = 1;
  WorkFormat format = WorkFormat::kFloat;
  bool own_kernels = true;  // system.kernel_arch is not generic
  bool recomputes = false;  // activation checkpointing
};

// Parts of the data sheet's numbers that are reached.
struct Efficiencies {
  double own = 0, cudnn = 0;  // of the rate, with many channels
  // With few channels cuDNN is bound by what multiprocessors issue, not by their tensor cores: on Hopper its rate falls
  // as this power of channels / 128, elsewhere where that would be the smaller of the two.
  double few_channels = 0;
  double strided = 0;         // of cuDNN's rate, where a stride or a transposed convolution is involved
  double bandwidth = 0;       // of passes that read and write
  double depthwise = 0;       // of the float32 rate: such convolutions take no tensor cores
  double channels_first = 0;  // of all of these in float32 and TF32, which keep torch's own layout and norms
  double kernel_us = 0;       // that each kernel takes beside its work
};
const Efficiencies& calibrated();

struct LayerTime {
  std::string name;
  double ms = 0;
  bool own_kernel = false;
};

struct StepPrediction {
  double forward_ms = 0, backward_ms = 0, loss_ms = 0, optimizer_ms = 0;
  std::vector<LayerTime> layers;  // convolutions with their norms, forward and backward
  double step_ms() const { return forward_ms + backward_ms + loss_ms + optimizer_ms; }
};
StepPrediction predict_step(const GpuWork& work, const GpuSpec& gpu, const Efficiencies& parts = calibrated());

}  // namespace vox
