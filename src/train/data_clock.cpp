#include "train/data_clock.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

namespace vox {

DataClock::DataClock(const c10::Device& device) : device_(device) {
  if (device.is_cuda()) gpu_.emplace(OnGpu{c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device)});
}

void DataClock::begin() {
  begin_ = Clock::now();
  if (gpu_) gpu_->given.record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
}

double DataClock::end() {
  const double waited = seconds_since(begin_);
  if (!gpu_) return waited;
  if (!gpu_->given.query()) return 0;
  gpu_->now.record(gpu_->side);
  gpu_->now.synchronize();
  return std::min(waited, 1e-3 * gpu_->given.elapsedTime(gpu_->now));
}

}  // namespace vox
