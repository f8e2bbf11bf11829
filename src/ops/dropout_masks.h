// Dropout masks on the device of what they are applied to. They are made on the host; a captured step therefore reads
// them from memory that is filled anew before each replay.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ops/epilogue.h"

namespace vox::ops {

// Of the device and type of `like`.
at::Tensor dropout_mask_on_device(const Dropout& dropout, const at::Tensor& like);

class FixedMasks {
 public:
  // While alive, masks that this thread asks for become fixed memory of `masks`, its content undefined.
  class Recording {
   public:
    explicit Recording(FixedMasks& masks);
    ~Recording();
    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;
  };

  // The masks of a batch whose first sample has this number. Never waits for the device.
  void fill(int64_t first_sample);

 private:
  friend at::Tensor dropout_mask_on_device(const Dropout& dropout, const at::Tensor& like);
  struct Mask {
    Dropout dropout;
    at::Tensor shape;  // on the meta device
    at::Tensor values;
  };
  std::vector<Mask> masks_;
};

}  // namespace vox::ops
