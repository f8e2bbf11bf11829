#include "ops/trace.h"

namespace vox::ops {
namespace {
thread_local Trace* innermost = nullptr;
}

Trace::Trace() : outer_(innermost) {
  innermost = this;
}

Trace::~Trace() {
  innermost = outer_;
}

Trace* Trace::current() {
  return innermost;
}

}  // namespace vox::ops
