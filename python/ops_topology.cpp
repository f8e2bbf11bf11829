// Operators on masks: skeletons by thinning, Betti numbers. What ops.cpp says of operators holds here.
#include <vector>

#include "kernels/betti.h"
#include "kernels/thinning.h"
#include "ops_tensors.h"
#ifdef VOX_HAVE_CUDA
#include "kernels/betti_cuda.h"
#include "kernels/thinning_cuda.h"
#endif

namespace vox::python {
namespace {

void check_dimensions(int64_t dimensions) {
  STD_TORCH_CHECK(dimensions == 2 || dimensions == 3, "voxloom: dimensions is ", dimensions, "; it is 2 or 3");
}

Tensor thin(Tensor mask, int64_t dimensions) {
  check_dimensions(dimensions);
  const Volumes volumes = volumes_of(mask, ScalarType::Byte, "mask");
  const Tensor out = like(mask, ScalarType::Byte);
  const auto thin_one = dimensions == 2 ? thin_2d_cpu : thin_3d_cpu;
  for_each_volume(volumes, [&](int64_t first) {
    thin_one(write<uint8_t>(out) + first, read<uint8_t>(mask) + first, volumes.extent, nullptr);
  });
  return out;
}

// [..., z, y, x] to [..., 3].
Tensor numbers_for(const Tensor& mask) {
  std::vector<int64_t> shape;
  for (int64_t axis = 0; axis + 3 < mask.dim(); ++axis) shape.push_back(mask.size(axis));
  shape.push_back(3);
  return torch::stable::new_empty(mask, {shape.data(), shape.size()}, ScalarType::Long);
}

Tensor betti_numbers(Tensor mask) {
  const Volumes volumes = volumes_of(mask, ScalarType::Byte, "mask");
  const Tensor out = numbers_for(mask);
  auto* place = write<int64_t>(out);
  for_each_volume(volumes, [&](int64_t first) {
    for (const int64_t number : betti_numbers_cpu(read<uint8_t>(mask) + first, volumes.extent)) *place++ = number;
  });
  return out;
}

#ifdef VOX_HAVE_CUDA

Tensor thin_on_gpu(Tensor mask, int64_t dimensions, int64_t stream) {
  check_dimensions(dimensions);
  const Volumes volumes = volumes_of(mask, ScalarType::Byte, "mask");
  const Tensor out = like(mask, ScalarType::Byte);
  on_stream(stream, [&](cuda::Stream on) {
    const auto workspace_size = dimensions == 2 ? thin_2d_workspace : thin_3d_workspace;
    const Tensor workspace = workspace_of(mask, workspace_size(volumes.count, volumes.extent), ScalarType::Long);
    const auto thin_all = dimensions == 2 ? thin_2d_cuda : thin_3d_cuda;
    thin_all(write<uint8_t>(out), read<uint8_t>(mask), volumes.count, volumes.extent, write<uint64_t>(workspace), on);
  });
  return out;
}

Tensor betti_numbers_on_gpu(Tensor mask, int64_t stream) {
  const Volumes volumes = volumes_of(mask, ScalarType::Byte, "mask");
  const Tensor out = numbers_for(mask);
  on_stream(stream, [&](cuda::Stream on) {
    const Tensor workspace = workspace_of(mask, betti_workspace(volumes.count, volumes.extent), ScalarType::Long);
    betti_numbers_cuda(write<int64_t>(out), read<uint8_t>(mask), volumes.count, volumes.extent,
                       write<uint64_t>(workspace), on);
  });
  return out;
}

#endif

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(voxloom, m) {
  m.def("thin(Tensor mask, int dimensions) -> Tensor");
  m.def("betti_numbers(Tensor mask) -> Tensor");
#ifdef VOX_HAVE_CUDA
  m.def("thin_cuda(Tensor mask, int dimensions, int stream) -> Tensor");
  m.def("betti_numbers_cuda(Tensor mask, int stream) -> Tensor");
#endif
}

STABLE_TORCH_LIBRARY_IMPL(voxloom, CPU, m) {
  m.impl("thin", TORCH_BOX(&thin));
  m.impl("betti_numbers", TORCH_BOX(&betti_numbers));
}

#ifdef VOX_HAVE_CUDA
STABLE_TORCH_LIBRARY_IMPL(voxloom, CUDA, m) {
  m.impl("thin_cuda", TORCH_BOX(&thin_on_gpu));
  m.impl("betti_numbers_cuda", TORCH_BOX(&betti_numbers_on_gpu));
}
#endif

}  // namespace vox::python
