// The kernels behind C functions: one process calls them and their peers on the same arrays.
#include "kernels/components.h"
#include "kernels/edt.h"
#include "kernels/morphology.h"
#include "kernels/persistence.h"
#include "kernels/soft_skeleton.h"
#include "kernels/thinning.h"

extern "C" void shim_edt(float* squared, const uint8_t* mask, int64_t z, int64_t y, int64_t x) {
  vox::edt_squared_cpu(squared, mask, {z, y, x});
}

extern "C" int64_t shim_components(uint32_t* labels, const uint8_t* mask, int64_t z, int64_t y, int64_t x,
                                   int connectivity) {
  return vox::components_cpu(labels, mask, {z, y, x}, static_cast<vox::Connectivity>(connectivity));
}

extern "C" void shim_thin(uint8_t* out, const uint8_t* mask, int64_t z, int64_t y, int64_t x, int dimensions) {
  const auto thin = dimensions == 2 ? vox::thin_2d_cpu : vox::thin_3d_cpu;
  thin(out, mask, {z, y, x}, nullptr);
}

extern "C" void shim_dilate(uint8_t* out, const uint8_t* mask, int64_t z, int64_t y, int64_t x, int times) {
  vox::dilate_cpu(out, mask, {z, y, x}, times);
}

extern "C" void shim_close(uint8_t* out, const uint8_t* mask, int64_t z, int64_t y, int64_t x) {
  vox::close_cpu(out, mask, {z, y, x});
}

extern "C" int64_t shim_persistence(int64_t* pairs, const float* values, int64_t z, int64_t y, int64_t x, int dimension,
                                    int falling, int cubes) {
  const std::vector<vox::PersistencePair> found =
      vox::persistence_pairs_cpu(values, {z, y, x}, dimension,
                                 {.level = falling ? vox::Level::kFalling : vox::Level::kRising,
                                  .construction = cubes ? vox::Construction::kCubes : vox::Construction::kVertices});
  for (const vox::PersistencePair& pair : found) {
    *pairs++ = pair.birth;
    *pairs++ = pair.death;
  }
  return static_cast<int64_t>(found.size());
}

extern "C" void shim_soft_skeleton(float* out, const float* in, int64_t z, int64_t y, int64_t x, int iterations,
                                   int cube) {
  vox::soft_skeleton_cpu(out, in, {z, y, x},
                         {.iterations = iterations, .erosion = static_cast<vox::SoftErosion>(cube)});
}

extern "C" void shim_soft_skeleton_backward(float* grad_in, const float* grad_out, const float* in, int64_t z,
                                            int64_t y, int64_t x, int iterations, int cube) {
  vox::soft_skeleton_backward_cpu(grad_in, grad_out, in, {z, y, x},
                                  {.iterations = iterations, .erosion = static_cast<vox::SoftErosion>(cube)});
}
