// SGD, Adam and AdamW over float32 masters. Learning rate, loss scale, clip factor, found-inf and the count live on the
// device; a step whose gradient norm is not finite changes no weight, moment or average, and nothing is read back.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "config/options.h"
#include "nets/parameters.h"
#include "train/precision.h"

namespace vox {

class Optimizer {
 public:
  // Borrows the parameters, which must be on their device and have their compute type and layout already. Starts the
  // average where options.ema > 0.
  Optimizer(const TrainingOptions& options, ParameterSet& parameters, Precision precision);
  ~Optimizer();

  void set_lr(double lr);                           // for the next step; never waits for the device
  at::Tensor scaled(const at::Tensor& loss) const;  // times the loss scale: what backward() starts from

  bool scales_loss() const;  // 16-mixed

  // From the collected gradients: unscale, norm, clip, update, average, shadows, loss scale.
  void step();

  // Scalars on the device, float32; read them when the host waits anyway.
  const at::Tensor& lr() const;
  const at::Tensor& grad_norm() const;     // of the last step, unscaled, before clipping
  const at::Tensor& found_inf() const;     // 1 where the last step was skipped
  const at::Tensor& count() const;         // steps that changed weights
  const at::Tensor& bad_steps() const;     // skipped so far
  const at::Tensor& bad_in_a_row() const;  // skipped since the last good one
  const at::Tensor& loss_scale() const;    // 1 but for 16-mixed

  // What a checkpoint keeps besides model.* and ema.*: "<param>.<slot>" (momentum | exp_avg, exp_avg_sq,
  // max_exp_avg_sq) and the scalars "count", "loss_scale", "growth_tracker", "bad_steps", "bad_in_a_row". The tensors
  // are the live ones: copy from them to save, copy_() into them to restore.
  std::vector<std::pair<std::string, at::Tensor>> state() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace vox
