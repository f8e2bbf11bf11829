// How long a step stands still for want of data.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <optional>

#include "base/span.h"

namespace vox {

// On a CPU it is all the time for which the thread that trains waits. A GPU computes meanwhile what it was given
// before, and stands still only from where that is done.
class DataClock {
 public:
  explicit DataClock(const c10::Device& device);
  void begin();
  double end();  // seconds

 private:
  struct OnGpu {
    c10::Stream side;  // idle: what is enqueued there happens now
    c10::Event given{c10::DeviceType::CUDA, c10::EventFlag::BACKEND_DEFAULT};
    c10::Event now{c10::DeviceType::CUDA, c10::EventFlag::BACKEND_DEFAULT};
  };

  c10::Device device_;
  std::optional<OnGpu> gpu_;
  Clock::time_point begin_;
};

}  // namespace vox
