// The option that steps on connected components share.
#pragma once

#include "base/error.h"
#include "config/visitor.h"
#include "kernels/components.h"

namespace vox {

struct ConnectivityOptions {
  int64_t connectivity = 26;
  void describe(Visitor& v) {
    v.field("connectivity", connectivity, {.meaning = "Neighbours that connect: 6, 18 or 26", .min = 6, .max = 26});
  }
  Connectivity value() const {
    VOX_CHECK(connectivity == 6 || connectivity == 18 || connectivity == 26, "postprocess: connectivity is ",
              connectivity, "; it is 6, 18 or 26");
    return static_cast<Connectivity>(connectivity);
  }
};

}  // namespace vox
