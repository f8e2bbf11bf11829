// Persistent features of tensors: ops/volume_ops.h.
#include <torch/types.h>

#include <span>

#include "base/error.h"
#include "kernels/persistence_cuda.h"
#include "ops/device.h"
#include "ops/parallel.h"
#include "ops/volume_ops.h"

namespace vox::ops {
namespace {

Extent3 map_extent(const at::Tensor& values) {
  VOX_ASSERT(values.dim() == 5);
  return {values.size(2), values.size(3), values.size(4)};
}

at::Tensor on_host(const at::Tensor& values) {
  return values.detach().to(at::kCPU, at::kFloat).contiguous();
}

void append(PairPlaces& places, std::span<const PersistencePair> pairs, int64_t volume, int64_t voxels) {
  for (auto* list : {&places.birth, &places.death, &places.volume}) list->reserve(list->size() + pairs.size());
  for (const PersistencePair& pair : pairs) {
    places.birth.push_back(volume * voxels + pair.birth);
    places.death.push_back(pair.death == PersistencePair::kNever ? -1 : volume * voxels + pair.death);
    places.volume.push_back(volume);
  }
}

using PairLists = std::vector<std::vector<PersistencePair>>;  // of each volume

void tunnels_on_gpu(PairLists& pairs, const at::Tensor& maps, const PersistenceOptions& options) {
  if constexpr (cuda::kCompiledIn) {
    const c10::DeviceGuard guard(maps.device());
    const Extent3 extent = map_extent(maps);
    const at::Tensor workspace = at::empty({persistence_workspace(extent, 1)}, maps.options().dtype(at::kByte));
    for (size_t i = 0; i < pairs.size(); ++i)
      pairs[i] = tunnel_pairs_cuda(maps.const_data_ptr<float>() + static_cast<int64_t>(i) * extent.voxels(), extent,
                                   options, workspace.data_ptr(), current_stream(maps));
  }
}

PairPlaces places_on_gpu(const at::Tensor& values, int dimension, const PersistenceOptions& options) {
  PairPlaces places;
  if constexpr (cuda::kCompiledIn) {
    const c10::DeviceGuard guard(values.device());
    const at::Tensor maps = values.detach().to(at::kFloat).contiguous();
    const Extent3 extent = map_extent(maps);
    const at::Tensor workspace = at::empty({persistence_workspace(extent, dimension)}, maps.options().dtype(at::kByte));
    const at::Tensor room = at::empty({most_persistence_pairs(extent, dimension), 2}, maps.options().dtype(at::kLong));
    static_assert(sizeof(PersistencePair) == 2 * sizeof(int64_t));
    for (int64_t i = 0; i < maps.size(0) * maps.size(1); ++i) {
      const int64_t count = persistence_pairs_cuda(reinterpret_cast<PersistencePair*>(room.data_ptr<int64_t>()),
                                                   maps.const_data_ptr<float>() + i * extent.voxels(), extent,
                                                   dimension, options, workspace.data_ptr(), current_stream(maps));
      const at::Tensor host = room.narrow(0, 0, count).cpu();
      const auto* pairs = reinterpret_cast<const PersistencePair*>(host.const_data_ptr<int64_t>());
      append(places, {pairs, static_cast<size_t>(count)}, i, extent.voxels());
    }
  }
  return places;
}

}  // namespace

bool has_persistence(const at::Tensor& values, int dimension) {
  if constexpr (cuda::kCompiledIn)
    if (values.is_cuda()) return has_persistence_cuda(map_extent(values), dimension);
  return values.is_cpu();
}

PairPlaces persistence_places(const at::Tensor& values, int dimension, const PersistenceOptions& options) {
  const bool on_gpu = values.is_cuda() && has_persistence(values, dimension);
  if (on_gpu && dimension != 1) return places_on_gpu(values, dimension, options);
  const at::Tensor maps = on_gpu ? values.detach().to(at::kFloat).contiguous() : on_host(values);
  const Extent3 extent = map_extent(maps);
  PairLists pairs(static_cast<size_t>(maps.size(0) * maps.size(1)));
  if (on_gpu) {
    tunnels_on_gpu(pairs, maps, options);
  } else {
    for_each_piece(maps.size(0) * maps.size(1), [&](int64_t i) {
      pairs[static_cast<size_t>(i)] =
          persistence_pairs_cpu(maps.const_data_ptr<float>() + i * extent.voxels(), extent, dimension, options);
    });
  }
  PairPlaces places;
  for (size_t i = 0; i < pairs.size(); ++i) append(places, pairs[i], static_cast<int64_t>(i), extent.voxels());
  return places;
}

MatchedPlaces matched_places(const at::Tensor& first, const at::Tensor& second, int dimension, Level level) {
  const at::Tensor a = on_host(first), b = on_host(second);
  VOX_ASSERT(a.sizes() == b.sizes());
  const Extent3 extent = map_extent(a);
  std::vector<PersistenceMatching> found(static_cast<size_t>(a.size(0) * a.size(1)));
  for_each_piece(a.size(0) * a.size(1), [&](int64_t i) {
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
