// The kernels as torch operators on the stable ABI: built once, loaded by torch 2.11 and later. Each takes contiguous
// tensors of the types that python/voxloom makes of what it is given, and works on the last three axes; forward and
// backward are operators of their own, joined in Python. Those whose names end in _cuda take the stream to work on, so
// that nothing here needs torch's own CUDA library.
#include <cmath>

#include "kernels/components.h"
#include "kernels/edt.h"
#include "kernels/persistence.h"
#include "kernels/soft_skeleton.h"
#include "ops_tensors.h"
#ifdef VOX_HAVE_CUDA
#include "kernels/components_cuda.h"
#include "kernels/dice_bce_cuda.h"
#include "kernels/edt_cuda.h"
#include "kernels/persistence_cuda.h"
#include "kernels/soft_skeleton_cuda.h"
#endif

namespace {

using namespace vox::python;
using vox::Extent3;

vox::EdtOptions distance_options(double z, double y, double x, double limit) {
  STD_TORCH_CHECK(z > 0 && y > 0 && x > 0 && limit > 0, "voxloom: spacing and limit must be positive");
  return {.spacing = {z, y, x}, .limit_mm = limit};
}

Tensor edt(Tensor mask, double z, double y, double x, double limit) {
  const Volumes volumes = volumes_of(mask, ScalarType::Byte, "mask");
  const Tensor out = like(mask, ScalarType::Float);
  float* const distance = write<float>(out);
  const vox::EdtOptions options = distance_options(z, y, x, limit);
  for_each_volume(volumes, [&](int64_t first) {
    vox::edt_squared_cpu(distance + first, read<uint8_t>(mask) + first, volumes.extent, options);
    for (int64_t i = first; i < first + volumes.extent.voxels(); ++i) distance[i] = std::sqrt(distance[i]);
  });
  return out;
}

Tensor signed_distance(Tensor mask, double z, double y, double x, double limit) {
  const Volumes volumes = volumes_of(mask, ScalarType::Byte, "mask");
  const Tensor out = like(mask, ScalarType::Float);
  const vox::EdtOptions options = distance_options(z, y, x, limit);
  for_each_volume(volumes, [&](int64_t first) {
    vox::signed_distance_cpu(write<float>(out) + first, read<uint8_t>(mask) + first, volumes.extent, options);
  });
  return out;
}

vox::SoftSkeletonOptions skeleton_options(int64_t iterations, bool cube) {
  STD_TORCH_CHECK(iterations >= 0 && iterations <= 1000, "voxloom: iterations is ", iterations, ", not 0 to 1000");
  return {static_cast<int>(iterations), cube ? vox::SoftErosion::kCube : vox::SoftErosion::kCross};
}

template <class T>
void skeleton_as(const Tensor& out, const Tensor& values, const Volumes& volumes,
                 const vox::SoftSkeletonOptions& options) {
  for_each_volume(volumes, [&](int64_t first) {
    vox::soft_skeleton_cpu(write<T>(out) + first, read<T>(values) + first, volumes.extent, options);
  });
}

Tensor soft_skeleton(Tensor values, int64_t iterations, bool cube) {
  const bool wide = values.scalar_type() == ScalarType::Double;
  const Volumes volumes = volumes_of(values, wide ? ScalarType::Double : ScalarType::Float, "values");
  const Tensor out = like(values, values.scalar_type());
  const auto compute = wide ? skeleton_as<double> : skeleton_as<float>;
  compute(out, values, volumes, skeleton_options(iterations, cube));
  return out;
}

template <class T>
void skeleton_backward_as(const Tensor& out, const Tensor& grad, const Tensor& values, const Volumes& volumes,
                          const vox::SoftSkeletonOptions& options) {
  for_each_volume(volumes, [&](int64_t first) {
    vox::soft_skeleton_backward_cpu(write<T>(out) + first, read<T>(grad) + first, read<T>(values) + first,
                                    volumes.extent, options);
  });
}

Tensor soft_skeleton_backward(Tensor grad, Tensor values, int64_t iterations, bool cube) {
  const bool wide = values.scalar_type() == ScalarType::Double;
  const ScalarType type = wide ? ScalarType::Double : ScalarType::Float;
  const Volumes volumes = volumes_of(values, type, "values");
  STD_TORCH_CHECK(volumes_of(grad, type, "grad").extent == volumes.extent && grad.numel() == values.numel(),
                  "voxloom: the gradient has another shape than the values");
  const Tensor out = like(values, type);
  const auto compute = wide ? skeleton_backward_as<double> : skeleton_backward_as<float>;
  compute(out, grad, values, volumes, skeleton_options(iterations, cube));
  return out;
}

Tensor connected_components(Tensor labels, int64_t connectivity) {
  STD_TORCH_CHECK(connectivity == 6 || connectivity == 18 || connectivity == 26, "voxloom: connectivity is ",
                  connectivity, "; it is 6, 18 or 26");
  const Volumes volumes = volumes_of(labels, ScalarType::Int, "labels");
  const Tensor out = like(labels, ScalarType::Int);
  for_each_volume(volumes, [&](int64_t first) {
    vox::label_components_cpu(write<uint32_t>(out) + first, read<uint32_t>(labels) + first, volumes.extent,
                              static_cast<vox::Connectivity>(connectivity));
  });
  return out;
}

Volumes map_of(const Tensor& values, int64_t dimension) {
  STD_TORCH_CHECK(dimension >= 0 && dimension <= 2, "voxloom: dimension is ", dimension, "; it is 0, 1 or 2");
  const Volumes volumes = volumes_of(values, ScalarType::Float, "values");
  STD_TORCH_CHECK(volumes.count == 1, "voxloom: persistence_pairs takes one volume");
  return volumes;
}
vox::PersistenceOptions persistence_options(bool falling, bool cubes) {
  return {falling ? vox::Level::kFalling : vox::Level::kRising,
          cubes ? vox::Construction::kCubes : vox::Construction::kVertices};
}

Tensor persistence_pairs(Tensor values, int64_t dimension, bool falling, bool cubes) {
  const Volumes volumes = map_of(values, dimension);
  std::vector<vox::PersistencePair> pairs;
  for_each_volume(volumes, [&](int64_t first) {
    pairs = vox::persistence_pairs_cpu(read<float>(values) + first, volumes.extent, static_cast<int>(dimension),
                                       persistence_options(falling, cubes));
  });
  const int64_t shape[2] = {static_cast<int64_t>(pairs.size()), 2};
  const Tensor out = torch::stable::new_empty(values, {shape, 2}, ScalarType::Long);
  std::copy(pairs.begin(), pairs.end(), reinterpret_cast<vox::PersistencePair*>(write<int64_t>(out)));
  return out;
}

// Sums over a sample: what Dice and cross entropy need, in one pass. Targets below 0 are ignored.
enum Sum : int64_t { kOverlap, kPredicted, kTarget, kEntropy, kVoxels, kSums };

double sigmoid(double logit) {
  return 1 / (1 + std::exp(-logit));
}

// [N, ...] and [N, ...] to [N, sums] in float64.
Tensor dice_bce_sums(Tensor logits, Tensor target) {
  STD_TORCH_CHECK(logits.scalar_type() == ScalarType::Float && target.scalar_type() == ScalarType::Float &&
                      logits.numel() == target.numel() && logits.dim() >= 1 && logits.size(0) > 0,
                  "voxloom: logits and target must be float32 tensors of one shape");
  const int64_t samples = logits.size(0), voxels = logits.numel() / samples;
  const int64_t shape[2] = {samples, kSums};
  const Tensor out = torch::stable::new_empty(logits, {shape, 2}, ScalarType::Double);
  for (int64_t n = 0; n < samples; ++n) {
    double* const sums = write<double>(out) + n * kSums;
    std::fill(sums, sums + kSums, 0.0);
    for (int64_t i = n * voxels; i < (n + 1) * voxels; ++i) {
      const double x = read<float>(logits)[i], t = read<float>(target)[i];
      if (t < 0) continue;
      const double p = sigmoid(x);
      sums[kOverlap] += p * t;
      sums[kPredicted] += p;
      sums[kTarget] += t;
      sums[kEntropy] += std::max(x, 0.0) - x * t + std::log1p(std::exp(-std::abs(x)));
      sums[kVoxels] += 1;
    }
  }
  return out;
}

// `grads` [N, sums]: the gradient of the loss by each sum.
Tensor dice_bce_backward(Tensor grads, Tensor logits, Tensor target) {
  STD_TORCH_CHECK(grads.scalar_type() == ScalarType::Double && grads.is_contiguous() && grads.dim() == 2 &&
                      grads.size(0) == logits.size(0) && grads.size(1) == kSums,
                  "voxloom: gradients of another shape than the sums");
  const int64_t samples = logits.size(0), voxels = logits.numel() / samples;
  const Tensor out = like(logits, ScalarType::Float);
  for (int64_t n = 0; n < samples; ++n) {
    const double* const by = read<double>(grads) + n * kSums;
    for (int64_t i = n * voxels; i < (n + 1) * voxels; ++i) {
      const double t = read<float>(target)[i], p = sigmoid(read<float>(logits)[i]);
      const double by_probability = by[kOverlap] * t + by[kPredicted];
      write<float>(out)[i] = t < 0 ? 0.0f : static_cast<float>(by_probability * p * (1 - p) + by[kEntropy] * (p - t));
    }
  }
  return out;
}

#ifdef VOX_HAVE_CUDA

Tensor distance_on_gpu(const Tensor& mask, const vox::EdtOptions& options, vox::DistanceOf distance, int64_t stream) {
  const Volumes volumes = volumes_of(mask, ScalarType::Byte, "mask");
  const Tensor out = like(mask, ScalarType::Float);
  on_stream(stream, [&](vox::cuda::Stream on) {
    vox::edt_cuda(write<float>(out), read<uint8_t>(mask), volumes.count, volumes.extent, options, distance, on);
  });
  return out;
}
Tensor edt_on_gpu(Tensor mask, double z, double y, double x, double limit, int64_t stream) {
  return distance_on_gpu(mask, distance_options(z, y, x, limit), vox::DistanceOf::kInside, stream);
}
Tensor signed_distance_on_gpu(Tensor mask, double z, double y, double x, double limit, int64_t stream) {
  return distance_on_gpu(mask, distance_options(z, y, x, limit), vox::DistanceOf::kBoth, stream);
}

vox::VolumeBatch batch_of(const Volumes& volumes) {
  STD_TORCH_CHECK(volumes.count <= vox::most_volumes_cuda(volumes.extent), "voxloom: ", volumes.count,
                  " volumes at once are too many for the GPU; at most ", vox::most_volumes_cuda(volumes.extent));
  return {volumes.count, volumes.extent};
}

Tensor soft_skeleton_on_gpu(Tensor values, int64_t iterations, bool cube, int64_t stream) {
  const vox::VolumeBatch batch = batch_of(volumes_of(values, ScalarType::Float, "values"));
  const Tensor out = like(values, ScalarType::Float);
  const Tensor workspace = workspace_of(values, vox::soft_skeleton_workspace(batch), ScalarType::Float);
  on_stream(stream, [&](vox::cuda::Stream on) {
    vox::soft_skeleton_cuda(write<float>(out), read<float>(values), batch, skeleton_options(iterations, cube),
                            write<float>(workspace), on);
  });
  return out;
}

Tensor soft_skeleton_backward_on_gpu(Tensor grad, Tensor values, int64_t iterations, bool cube, int64_t stream) {
  const Volumes volumes = volumes_of(values, ScalarType::Float, "values");
  STD_TORCH_CHECK(
      volumes_of(grad, ScalarType::Float, "grad").extent == volumes.extent && grad.numel() == values.numel(),
      "voxloom: the gradient has another shape than the values");
  const vox::VolumeBatch batch = batch_of(volumes);
  const Tensor out = like(values, ScalarType::Float);
  const Tensor workspace = workspace_of(values, vox::soft_skeleton_backward_workspace(batch), ScalarType::Float);
  on_stream(stream, [&](vox::cuda::Stream on) {
    vox::soft_skeleton_backward_cuda(write<float>(out), read<float>(grad), read<float>(values), batch,
                                     skeleton_options(iterations, cube), write<float>(workspace), on);
  });
  return out;
}

Tensor connected_components_on_gpu(Tensor labels, int64_t connectivity, int64_t stream) {
  STD_TORCH_CHECK(connectivity == 6 || connectivity == 18 || connectivity == 26, "voxloom: connectivity is ",
                  connectivity, "; it is 6, 18 or 26");
  const Volumes volumes = volumes_of(labels, ScalarType::Int, "labels");
  const Tensor out = like(labels, ScalarType::Int);
  const int64_t size = vox::components_workspace(volumes.count, volumes.extent);
  const Tensor workspace = workspace_of(labels, size, ScalarType::Int);
  on_stream(stream, [&](vox::cuda::Stream on) {
    vox::label_components_cuda(write<uint32_t>(out), nullptr, read<uint32_t>(labels), volumes.count, volumes.extent,
                               static_cast<vox::Connectivity>(connectivity), write<uint32_t>(workspace), on);
  });
  return out;
}

Tensor persistence_pairs_on_gpu(Tensor values, int64_t dimension, bool falling, bool cubes, int64_t stream) {
  const Extent3 extent = map_of(values, dimension).extent;
  int64_t count = 0, shape[2] = {vox::most_persistence_pairs(extent, static_cast<int>(dimension)), 2};
  Tensor pairs = torch::stable::new_empty(values, {shape, 2}, ScalarType::Long);
  on_stream(stream, [&](vox::cuda::Stream on) {
    const Tensor workspace =
        workspace_of(values, vox::persistence_workspace(extent, static_cast<int>(dimension)), ScalarType::Byte);
    count = vox::persistence_pairs_cuda(reinterpret_cast<vox::PersistencePair*>(write<int64_t>(pairs)),
                                        read<float>(values), extent, static_cast<int>(dimension),
                                        persistence_options(falling, cubes), write<uint8_t>(workspace), on);
  });
  return torch::stable::clone(torch::stable::narrow(pairs, 0, 0, count));
}

vox::DiceBceInput dice_bce_input(const Tensor& logits, const Tensor& target) {
  STD_TORCH_CHECK(logits.scalar_type() == ScalarType::Float && target.scalar_type() == ScalarType::Float &&
                      logits.is_contiguous() && target.is_contiguous() && logits.numel() == target.numel() &&
                      logits.dim() >= 1 && logits.size(0) > 0,
                  "voxloom: logits and target must be contiguous float32 tensors of one shape");
  return {read<float>(logits), read<float>(target), logits.size(0), logits.numel() / logits.size(0)};
}

Tensor dice_bce_sums_on_gpu(Tensor logits, Tensor target, int64_t stream) {
  const vox::DiceBceInput input = dice_bce_input(logits, target);
  const int64_t shape[2] = {input.samples, kSums};
  const Tensor out = torch::stable::new_empty(logits, {shape, 2}, ScalarType::Double);
  const Tensor workspace = workspace_of(logits, vox::dice_bce_workspace(input), ScalarType::Double);
  on_stream(stream, [&](vox::cuda::Stream on) {
    vox::dice_bce_sums_cuda(write<double>(out), input, write<double>(workspace), on);
  });
  return out;
}

Tensor dice_bce_backward_on_gpu(Tensor grads, Tensor logits, Tensor target, int64_t stream) {
  const vox::DiceBceInput input = dice_bce_input(logits, target);
  STD_TORCH_CHECK(grads.scalar_type() == ScalarType::Double && grads.is_contiguous() && grads.dim() == 2 &&
                      grads.size(0) == input.samples && grads.size(1) == kSums,
                  "voxloom: gradients of another shape than the sums");
  const Tensor out = like(logits, ScalarType::Float);
  on_stream(stream, [&](vox::cuda::Stream on) {
    vox::dice_bce_backward_cuda(write<float>(out), read<double>(grads), input, on);
  });
  return out;
}

static_assert(int64_t{vox::kDiceBceSums} == kSums);

#endif

}  // namespace

STABLE_TORCH_LIBRARY(voxloom, m) {
  m.def("edt(Tensor mask, float z, float y, float x, float limit) -> Tensor");
  m.def("signed_distance(Tensor mask, float z, float y, float x, float limit) -> Tensor");
  m.def("soft_skeleton(Tensor values, int iterations, bool cube) -> Tensor");
  m.def("soft_skeleton_backward(Tensor grad, Tensor values, int iterations, bool cube) -> Tensor");
  m.def("connected_components(Tensor labels, int connectivity) -> Tensor");
  m.def("persistence_pairs(Tensor values, int dimension, bool falling, bool cubes) -> Tensor");
  m.def("dice_bce_sums(Tensor logits, Tensor target) -> Tensor");
  m.def("dice_bce_backward(Tensor grads, Tensor logits, Tensor target) -> Tensor");
#ifdef VOX_HAVE_CUDA
  m.def("edt_cuda(Tensor mask, float z, float y, float x, float limit, int stream) -> Tensor");
  m.def("signed_distance_cuda(Tensor mask, float z, float y, float x, float limit, int stream) -> Tensor");
  m.def("soft_skeleton_cuda(Tensor values, int iterations, bool cube, int stream) -> Tensor");
  m.def("soft_skeleton_backward_cuda(Tensor grad, Tensor values, int iterations, bool cube, int stream) -> Tensor");
  m.def("connected_components_cuda(Tensor labels, int connectivity, int stream) -> Tensor");
  m.def("persistence_pairs_cuda(Tensor values, int dimension, bool falling, bool cubes, int stream) -> Tensor");
  m.def("dice_bce_sums_cuda(Tensor logits, Tensor target, int stream) -> Tensor");
  m.def("dice_bce_backward_cuda(Tensor grads, Tensor logits, Tensor target, int stream) -> Tensor");
#endif
}

STABLE_TORCH_LIBRARY_IMPL(voxloom, CPU, m) {
  m.impl("edt", TORCH_BOX(&edt));
  m.impl("signed_distance", TORCH_BOX(&signed_distance));
  m.impl("soft_skeleton", TORCH_BOX(&soft_skeleton));
  m.impl("soft_skeleton_backward", TORCH_BOX(&soft_skeleton_backward));
  m.impl("connected_components", TORCH_BOX(&connected_components));
  m.impl("persistence_pairs", TORCH_BOX(&persistence_pairs));
  m.impl("dice_bce_sums", TORCH_BOX(&dice_bce_sums));
  m.impl("dice_bce_backward", TORCH_BOX(&dice_bce_backward));
}

#ifdef VOX_HAVE_CUDA
STABLE_TORCH_LIBRARY_IMPL(voxloom, CUDA, m) {
  m.impl("edt_cuda", TORCH_BOX(&edt_on_gpu));
  m.impl("signed_distance_cuda", TORCH_BOX(&signed_distance_on_gpu));
  m.impl("soft_skeleton_cuda", TORCH_BOX(&soft_skeleton_on_gpu));
  m.impl("soft_skeleton_backward_cuda", TORCH_BOX(&soft_skeleton_backward_on_gpu));
  m.impl("connected_components_cuda", TORCH_BOX(&connected_components_on_gpu));
  m.impl("persistence_pairs_cuda", TORCH_BOX(&persistence_pairs_on_gpu));
  m.impl("dice_bce_sums_cuda", TORCH_BOX(&dice_bce_sums_on_gpu));
  m.impl("dice_bce_backward_cuda", TORCH_BOX(&dice_bce_backward_on_gpu));
}
#endif
