// Components and cavities by kernels/persistence_finder.cuh. Tunnels: cells that come with the same voxel cancel
// (kernels/star_gradient.h), edges that join components are found as those are, and every other edge learns which few
// it stands for (kernels/tunnel_steps.h). The columns that are left go to the host, which reduces them.
#include "kernels/persistence_cuda.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "kernels/persistence_finder.cuh"
#include "kernels/tunnel_columns.h"
#include "kernels/tunnel_kernels.cuh"

namespace vox {
namespace {

using namespace persistence;

// Rows and columns that the GPU has room for; the CPU takes maps that have more.
int64_t place_tunnels(Tunnels& t, Problem& p, void* workspace) {
  t.places = p.places, t.most_rows = p.voxels, t.most_columns = p.voxels / 2 + 64;
  Pieces pieces{static_cast<std::byte*>(workspace)};
  pieces.take(p.keys, p.places);
  Pieces after_search = pieces;  // the lists lie where components were sought before
  place_search(p, pieces);
  after_search.take(t.rows, t.most_rows);
  after_search.take(t.rest, 3 * t.most_rows);
  after_search.take(t.edges, 4 * t.most_columns);
  after_search.take(t.cubes, 2 * t.most_columns);
  pieces.taken = std::max(pieces.taken, after_search.taken);
  pieces.take(t.work.links, 3 * p.places);
  pieces.take(t.work.up, p.places);
  pieces.take(t.columns, t.most_columns);
  place_sort(p, pieces);
  t.work.cells = {static_cast<uint32_t>(p.slice), static_cast<uint32_t>(p.row)};
  t.work.keys = p.keys;
  t.counters = p.counters;
  return pieces.taken;
}

class TunnelFinder : PairFinder {
 public:
  TunnelFinder(const Tunnels& tunnels, const Problem& problem, cuda::Stream stream)
      : PairFinder(problem, stream), t_(tunnels) {}

  // Pairs of places; nothing where the lists are too short for this map.
  std::optional<std::vector<PlacePair>> find(const float* values, bool cubes) {
    reset(kMinima, kCounters);
    launch(fill_tunnel_keys, p_.places, stream_, p_, values, cubes);
    fill(t_.work.links, 0xff, 3 * p_.places);
    fill(t_.work.up, 0, p_.places);
    launch(take_stars_apart, p_.places, stream_, t_);
    find_ends();
    launch(drop_joining_edges, p_.minima - 1, stream_, t_, p_);
    for (const int most_hops : {16, 16, 16, INT32_MAX}) launch(follow_up, p_.places, stream_, t_, most_hops);
    settle();
    launch(list_rows, 3 * p_.places, stream_, t_);
    uint32_t found[2];  // rows, columns
    to_host(found, p_.counters + kRows, 2);
    if (found[0] > t_.most_rows || found[1] > t_.most_columns) return std::nullopt;
    return tunnel_pairs_of(columns_of(found[0], found[1]));
  }

  int64_t voxel(uint32_t place) const { return p_.voxel(place); }

 private:
  void fill(uint32_t* items, int byte, int64_t count) {
    cuda::check(cudaMemsetAsync(items, byte, sizeof(uint32_t) * static_cast<size_t>(count), stream_), "persistence");
  }

  // Edges that still wait after the last round become rows, which is right all the same.
  void settle() {
    constexpr int kMostRounds = 64, kRoundsAtOnce = 8, kMostHops = 16;
    for (int round = 1; round <= kMostRounds; ++round) {
      const bool counts = round % kRoundsAtOnce == 0;
      if (counts) reset(kWaiting);
      launch(settle_edges, 3 * p_.places, stream_, t_, kMostHops);
      if (counts && read(kWaiting) == 0) return;
    }
  }

  TunnelColumns columns_of(int64_t rows, int64_t columns) {
    sort(t_.rows, reinterpret_cast<uint64_t*>(t_.rest), rows);
    sort(t_.columns, reinterpret_cast<uint64_t*>(t_.edges), columns);
    launch(write_rests, rows, stream_, t_, rows);
    launch(write_columns, columns, stream_, t_, columns);
    launch(number_rows, rows, stream_, t_, rows);
    launch(put_numbers, 3 * rows, stream_, t_, t_.rest, 3 * rows);
    launch(put_numbers, 4 * columns, stream_, t_, t_.edges, 4 * columns);
    TunnelColumns left{.places = p_.places};
    copy(left.rows, t_.rows, rows);
    copy(left.columns, t_.columns, columns);
    copy(left.rest, t_.rest, 3 * rows);
    copy(left.edges, t_.edges, 4 * columns);
    copy(left.cubes, t_.cubes, 2 * columns);
    return left;
  }
  template <class T>
  void copy(std::vector<T>& host, const T* device, int64_t count) {
    host.resize(static_cast<size_t>(count));
    if (count > 0) to_host(host.data(), device, host.size());
  }

  Tunnels t_;
};

void send(PersistencePair* pairs, const std::vector<PersistencePair>& found, cuda::Stream stream) {
  cuda::check(
      cudaMemcpyAsync(pairs, found.data(), sizeof(PersistencePair) * found.size(), cudaMemcpyHostToDevice, stream),
      "persistence");
  cuda::check(cudaStreamSynchronize(stream), "persistence");  // until the list has left the host
}

std::vector<PersistencePair> tunnels_by_cpu(const float* values, const Extent3& extent,
                                            const PersistenceOptions& options, cuda::Stream stream) {
  std::vector<float> host(static_cast<size_t>(extent.voxels()));
  cuda::check(cudaMemcpyAsync(host.data(), values, sizeof(float) * host.size(), cudaMemcpyDeviceToHost, stream),
              "persistence");
  cuda::check(cudaStreamSynchronize(stream), "persistence");
  return persistence_pairs_cpu(host.data(), extent, 1, options);
}

}  // namespace

bool has_persistence_cuda(const Extent3& extent, int dimension) {
  if (dimension == 1) return (extent + Extent3{4, 4, 4}).voxels() < int64_t{1} << tunnels::kPlaceBits;
  return (extent + Extent3{2, 2, 2}).voxels() < kMostPlaces;
}

int64_t persistence_workspace(const Extent3& extent, int dimension) {
  VOX_CHECK(has_persistence_cuda(extent, dimension), "persistence of dimension ", dimension,
            " is found on the GPU in volumes of fewer than 2^", dimension == 1 ? tunnels::kPlaceBits : kNumberBits,
            " voxels, not ", extent, "; bring the map to the CPU");
  Problem problem = problem_of(dimension == 1 ? extent + Extent3{2, 2, 2} : extent);
  Tunnels tunnels{};
  return dimension == 1 ? place_tunnels(tunnels, problem, nullptr) : place_memory(problem, nullptr);
}

// Every tunnel begins with an edge that closes a loop, of at most three edges a voxel less one that joins it.
int64_t most_persistence_pairs(const Extent3& extent, int dimension) {
  return dimension == 1 ? 2 * (extent + Extent3{2, 2, 2}).voxels() + 1 : problem_of(extent).most_minima;
}

// Cubes are the voxels outside, reversed and with the space around them, as vertices (kernels/persistence_cpu.cpp).
std::vector<PersistencePair> tunnel_pairs_cuda(const float* values, const Extent3& extent,
                                               const PersistenceOptions& options, void* workspace,
                                               cuda::Stream stream) {
  if (extent.voxels() == 0) return {};
  const bool cubes = options.construction == Construction::kCubes;
  Problem problem = problem_of(cubes ? extent + Extent3{2, 2, 2} : extent);
  Tunnels tunnels{};
  place_tunnels(tunnels, problem, workspace);
  problem.falling = options.level == Level::kFalling;
  problem.by_faces = true;
  TunnelFinder finder(tunnels, problem, stream);
  const std::optional<std::vector<PlacePair>> found = finder.find(values, cubes);
  if (!found) return tunnels_by_cpu(values, extent, options, stream);
  Problem reversed = problem_of(extent);
  reversed.reversed = true;
  std::vector<PersistencePair> pairs;
  pairs.reserve(found->size());
  for (const auto& [birth, death] : *found) {
    const int64_t first = finder.voxel(birth), last = finder.voxel(death);
    if (cubes)  // voxels of the larger grid are the smaller one's places
      pairs.push_back({reversed.voxel(static_cast<uint32_t>(last)), reversed.voxel(static_cast<uint32_t>(first))});
    else
      pairs.push_back({first, last});
  }
  return pairs;
}

int64_t persistence_pairs_cuda(PersistencePair* pairs, const float* values, const Extent3& extent, int dimension,
                               const PersistenceOptions& options, void* workspace, cuda::Stream stream) {
  VOX_ASSERT(has_persistence_cuda(extent, dimension));
  if (extent.voxels() == 0) return 0;
  if (dimension == 1) {
    const std::vector<PersistencePair> found = tunnel_pairs_cuda(values, extent, options, workspace, stream);
    if (!found.empty()) send(pairs, found, stream);
    return static_cast<int64_t>(found.size());
  }
  Problem problem = problem_of(extent);
  place_memory(problem, workspace);
  problem.reversed = dimension == 2;
  problem.falling = options.level == Level::kFalling;
  problem.by_faces = (options.construction == Construction::kVertices) != problem.reversed;
  return PairFinder(problem, stream).find(pairs, values);
}

}  // namespace vox
