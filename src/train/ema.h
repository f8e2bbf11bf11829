// While alive, a network runs on its averaged weights; afterwards it has its own back, bit for bit.
#pragma once

#include "nets/parameters.h"

namespace vox {

class EmaScope {
 public:
  explicit EmaScope(ParameterSet& parameters);  // does nothing where the average is off
  ~EmaScope();
  EmaScope(const EmaScope&) = delete;
  EmaScope& operator=(const EmaScope&) = delete;

 private:
  void exchange();
  ParameterSet& parameters_;
};

}  // namespace vox
