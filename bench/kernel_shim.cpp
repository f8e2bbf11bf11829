// The kernels behind C functions, for metrics_peers.py: one process calls them and their peers on the same arrays.
#include "kernels/components.h"
#include "kernels/edt.h"

extern "C" void shim_edt(float* squared, const uint8_t* mask, int64_t z, int64_t y, int64_t x) {
  vox::edt_squared_cpu(squared, mask, {z, y, x});
}

extern "C" int64_t shim_components(uint32_t* labels, const uint8_t* mask, int64_t z, int64_t y, int64_t x,
                                   int connectivity) {
  return vox::components_cpu(labels, mask, {z, y, x}, static_cast<vox::Connectivity>(connectivity));
}
