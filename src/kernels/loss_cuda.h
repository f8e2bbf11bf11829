// Losses of voxels on the GPU: every sum that the terms of a group need in one pass over the logits of all outputs, and
// one pass that writes the gradient of their weighted sum. Targets are read as the batch has them, by nearest neighbour
// at coarser outputs. Sums have a fixed order.
#pragma once

#include "kernels/cuda.h"

namespace vox::cuda {

constexpr int kMaxLossScales = 8, kMaxLossClasses = 16, kLossTerms = 3;

// Which probabilities the terms share. Terms by place: sigmoid: region, binary cross entropy; softmax: region, cross
// entropy; values: absolute error, weighted absolute error where a voxel counts, squared error where it counts.
enum class LossGroup : uint8_t { kSigmoid, kSoftmax, kValues };
enum class TargetForm : uint8_t {
  kValue,      // the number itself, one volume a channel
  kAboveZero,  // 1 where the label is above 0; one channel
  kClass,      // 1 in the channel that the label names
};
enum class Element : uint8_t { kUInt8, kInt8, kInt16, kInt32, kInt64, kFloat32 };

struct LossVolume {  // [n, channels, z, y, x] at full resolution
  const void* data = nullptr;
  Element type = Element::kUInt8;
};

struct LossScale {
  const float* logits = nullptr;  // [n, channels, z, y, x]
  float* dlogits = nullptr;       // of loss_backward
  int z = 1, y = 1, x = 1;
  float value_weight[kLossTerms] = {};  // factor in the value of each term; 0: not here
  float total_weight[kLossTerms] = {};  // factor in the weighted sum
};

struct LossProblem {
  LossGroup group = LossGroup::kSigmoid;
  TargetForm form = TargetForm::kAboveZero;
  int64_t samples = 1;
  int channels = 1;
  int z = 1, y = 1, x = 1;  // of the volumes; below 2^15
  LossVolume target;
  LossVolume label;  // voxels that are `ignored` there do not count; null: none is
  LossVolume mask;   // voxels that are 0 there do not count; null: all do
  float ignored = 0;
  int values = 0;  // kClass: the sorted label values of the classes; 0: they are 0, 1, 2, ...
  float value[kMaxLossClasses] = {};
  float class_weight[kMaxLossClasses] = {};  // of a channel (binary cross entropy) or a class (cross entropy)
  // Region: 1 - (I + smooth) / (I + alpha (P - I) + beta (T - I) + smooth), I = sum(p t), P = sum(p), T = sum(t).
  bool batch = false, background = false;
  float smooth = 0, alpha = 0.5f, beta = 0.5f;
  float pos_weight = 1;
  float target_weight = 0;  // of the weighted absolute error: 1 + target_weight * |t|
  int scales = 0;
  LossScale scale[kMaxLossScales];
};

int64_t loss_workspace(const LossProblem& problem);  // bytes
struct LossResult {                                  // on the device
  float* total = nullptr;                            // the weighted sum
  float* terms = nullptr;                            // the value of each term
};
void loss_forward(const LossProblem& problem, const LossResult& result, void* workspace, Stream stream);
// After loss_forward with the same workspace: dlogits = *upstream * d(weighted sum) / d(logits).
void loss_backward(const LossProblem& problem, const float* upstream, const void* workspace, Stream stream);

}  // namespace vox::cuda
