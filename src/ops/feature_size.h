#pragma once

#include "base/shape.h"
#include "ops/feature.h"

namespace vox::ops {

Extent3 extent_of(const Feature& feature);  // applies nothing that waits

}  // namespace vox::ops
