// What the terms of a loss take: the host's clock on a CPU, laps among its kernels on a GPU.
#include <ATen/ops/zeros.h>

#include <utility>

#include "losses/loss_set.h"
#include "ops/device.h"

namespace vox {

void LossSet::time_terms(const at::Device& device) {
  for (Impl::Term& term : impl_->terms) {
    term.seconds.reset();
    term.loss->take_wait();
  }
  if (!cuda::kCompiledIn || !device.is_cuda()) return;
  if (impl_->clock.defined()) {  // graphs may hold its address
    impl_->clock.zero_();
    return;
  }
  impl_->clock =
      at::zeros({static_cast<int64_t>(impl_->terms.size()) + 1}, at::TensorOptions(at::kLong).device(device));
}

std::optional<double> LossSet::take_seconds(size_t term) const {
  return std::exchange(impl_->terms[term].seconds, std::nullopt);
}

at::Tensor LossSet::term_nanoseconds() const {
  return impl_->clock.defined() ? impl_->clock.slice(0, 0, -1) : at::Tensor();
}

void LossSet::Impl::Laps::take(const std::vector<size_t>& of) const {
  if constexpr (cuda::kCompiledIn)
    if (clock_.defined()) ops::take_lap(clock_, of);
}

}  // namespace vox
