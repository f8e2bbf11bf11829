#include "ops/volume_ops.h"

#include <ATen/Parallel.h>
#include <torch/torch.h>

#include <array>

#include "base/error.h"
#include "kernels/edt.h"

namespace vox::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Extent3 volume_extent(const at::Tensor& values) {
  VOX_ASSERT(values.dim() == 5);
  return {values.size(2), values.size(3), values.size(4)};
}

// Calls work(volume) for each of the N * C volumes, side by side.
template <class Work>
void for_each_volume(const at::Tensor& values, const Work& work) {
  at::parallel_for(0, values.size(0) * values.size(1), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) work(i);
  });
}

template <class Work>
void with_type_of(const at::Tensor& values, const Work& work) {
  if (values.scalar_type() == at::kDouble) return work(double{});
  VOX_ASSERT(values.scalar_type() == at::kFloat);
  work(float{});
}

struct SoftSkeleton : torch::autograd::Function<SoftSkeleton> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& values, int64_t iterations, int64_t erosion) {
    const at::Tensor input = values.contiguous();
    context->save_for_backward({input});
    context->saved_data["iterations"] = iterations;
    context->saved_data["erosion"] = erosion;
    at::Tensor result = at::empty_like(input);
    const SoftSkeletonOptions options{static_cast<int>(iterations), static_cast<SoftErosion>(erosion)};
    const Extent3 extent = volume_extent(input);
    with_type_of(input, [&](auto type) {
      using T = decltype(type);
      for_each_volume(input, [&](int64_t i) {
        const int64_t start = i * extent.voxels();
        soft_skeleton_cpu(result.data_ptr<T>() + start, input.data_ptr<T>() + start, extent, options);
      });
    });
    return result;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const at::Tensor input = context->get_saved_variables()[0], outer = grads[0].contiguous();
    const SoftSkeletonOptions options{static_cast<int>(context->saved_data["iterations"].toInt()),
                                      static_cast<SoftErosion>(context->saved_data["erosion"].toInt())};
    at::Tensor result = at::zeros_like(input);
    const Extent3 extent = volume_extent(input);
    with_type_of(input, [&](auto type) {
      using T = decltype(type);
      for_each_volume(input, [&](int64_t i) {
        const int64_t start = i * extent.voxels();
        soft_skeleton_backward_cpu(result.data_ptr<T>() + start, outer.data_ptr<T>() + start,
                                   input.data_ptr<T>() + start, extent, options);
      });
    });
    return {result, at::Tensor(), at::Tensor()};
  }
};

at::Tensor max_pooled(const at::Tensor& values, const std::array<int64_t, 3>& kernel) {
  const std::array<int64_t, 3> padding{kernel[0] / 2, kernel[1] / 2, kernel[2] / 2};
  return at::max_pool3d(values, kernel, {1, 1, 1}, padding);
}

at::Tensor composed_skeleton(const at::Tensor& values, const SoftSkeletonOptions& options) {
  const bool cross = options.erosion == SoftErosion::kCross;
  at::Tensor level = values, skeleton;
  for (int k = 0; k < options.iterations + cross; ++k) {
    const at::Tensor eroded = soft_erode(level, options.erosion);
    const at::Tensor ridge = at::relu(level - max_pooled(eroded, {3, 3, 3}));
    skeleton = !skeleton.defined() ? ridge : skeleton + at::relu(ridge - (cross ? skeleton * ridge : skeleton));
    level = eroded;
  }
  return skeleton.defined() ? skeleton : at::zeros_like(values);
}

}  // namespace

at::Tensor soft_skeleton(const at::Tensor& values, const SoftSkeletonOptions& options) {
  if (!values.is_cpu()) return composed_skeleton(values, options);
  return SoftSkeleton::apply(values, static_cast<int64_t>(options.iterations), static_cast<int64_t>(options.erosion));
}

at::Tensor soft_erode(const at::Tensor& values, SoftErosion erosion) {
  const at::Tensor negative = values.neg();
  if (erosion == SoftErosion::kCube) return max_pooled(negative, {3, 3, 3}).neg();
  return at::min(at::min(max_pooled(negative, {3, 1, 1}).neg(), max_pooled(negative, {1, 3, 1}).neg()),
                 max_pooled(negative, {1, 1, 3}).neg());
}

at::Tensor distance_to(const at::Tensor& mask, double limit) {
  const at::NoGradGuard no_grad;
  const at::Tensor outside = mask.logical_not().to(at::kCPU, at::kByte).contiguous();
  at::Tensor squared = at::empty(outside.sizes(), at::kFloat);
  const Extent3 extent = volume_extent(outside);
  for_each_volume(outside, [&](int64_t i) {
    const int64_t start = i * extent.voxels();
    edt_squared_cpu(squared.data_ptr<float>() + start, outside.data_ptr<uint8_t>() + start, extent,
                    {.spacing = {}, .limit_mm = limit});
  });
  return squared.sqrt_().to(mask.device());
}

at::Tensor signed_distance(const at::Tensor& mask, double limit) {
  const at::NoGradGuard no_grad;
  return distance_to(mask, limit) - distance_to(mask.logical_not(), limit);
}

namespace {

at::Tensor on_host(const at::Tensor& values) {
  return values.detach().to(at::kCPU, at::kFloat).contiguous();
}

void append(PairPlaces& places, const std::vector<PersistencePair>& pairs, int64_t volume, int64_t voxels) {
  for (const PersistencePair& pair : pairs) {
    places.birth.push_back(volume * voxels + pair.birth);
    places.death.push_back(pair.death == PersistencePair::kNever ? -1 : volume * voxels + pair.death);
    places.volume.push_back(volume);
  }
}

}  // namespace

PairPlaces persistence_places(const at::Tensor& values, int dimension, const PersistenceOptions& options) {
  const at::Tensor host = on_host(values);
  const Extent3 extent = volume_extent(host);
  std::vector<std::vector<PersistencePair>> pairs(static_cast<size_t>(host.size(0) * host.size(1)));
  for_each_volume(host, [&](int64_t i) {
    pairs[static_cast<size_t>(i)] =
        persistence_pairs_cpu(host.const_data_ptr<float>() + i * extent.voxels(), extent, dimension, options);
  });
  PairPlaces places;
  for (size_t i = 0; i < pairs.size(); ++i) append(places, pairs[i], static_cast<int64_t>(i), extent.voxels());
  return places;
}

MatchedPlaces matched_places(const at::Tensor& first, const at::Tensor& second, int dimension, Level level) {
  const at::Tensor a = on_host(first), b = on_host(second);
  VOX_ASSERT(a.sizes() == b.sizes());
  const Extent3 extent = volume_extent(a);
  std::vector<PersistenceMatching> found(static_cast<size_t>(a.size(0) * a.size(1)));
  for_each_volume(a, [&](int64_t i) {
    const int64_t start = i * extent.voxels();
    found[static_cast<size_t>(i)] = match_persistence_cpu(a.const_data_ptr<float>() + start,
                                                          b.const_data_ptr<float>() + start, extent, dimension, level);
  });
  MatchedPlaces places;
  for (size_t i = 0; i < found.size(); ++i) {
    for (const auto& [in_a, in_b] : found[i].matches)
      places.matches.push_back({places.first.birth.size() + static_cast<size_t>(in_a),
                                places.second.birth.size() + static_cast<size_t>(in_b)});
    append(places.first, found[i].a, static_cast<int64_t>(i), extent.voxels());
    append(places.second, found[i].b, static_cast<int64_t>(i), extent.voxels());
  }
  return places;
}

}  // namespace vox::ops
