// Kruskal's algorithm on the edges by which voxels touch earlier ones, as kernels/merges_cpu.cpp runs it, side by side.
// Each voxel leads to its earlier neighbour of the first direction, and so to the first voxel of a basin; what is left
// are edges of saddles, voxels whose earlier neighbours are not connected among themselves. An edge is known by its
// saddle's place in the order and its direction: all are different, and Kruskal takes them in this order.
//
// In each round every component finds its first edge to another one. At that edge it ends if the other one is older
// (or has joined an older one): nothing else touches it before. Few rounds leave one component of a noisy map. Where
// too few end in a round, the remaining components are joined as Boruvka does, whichever is older, and the host sends
// the edges that did so (one less than the components) through a union-find. Results do not depend on the order of
// threads: whatever is written side by side is a minimum, a place in a list that is sorted, or one thread's own.
#pragma once

#include <algorithm>
#include <cub/device/device_radix_sort.cuh>
#include <vector>

#include "kernels/persistence_steps.cuh"
#include "kernels/union_find.h"

namespace vox::persistence {

constexpr uint32_t kSlowRound = 8;  // fewer than this part of the components end in it

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), int64_t items, cuda::Stream stream, const Arguments&... arguments) {
  if (items == 0) return;
  const unsigned blocks = static_cast<unsigned>((items + kThreads - 1) / kThreads);
  kernel<<<blocks, kThreads, 0, stream>>>(arguments...);
  cuda::check_launch("persistence");
}

inline size_t sort_bytes_of(int64_t count) {
  cub::DoubleBuffer<uint64_t> buffers(nullptr, nullptr);
  size_t bytes = 0;
  cuda::check(cub::DeviceRadixSort::SortKeys(nullptr, bytes, buffers, static_cast<int>(count)), "space for sorting");
  return bytes;
}

// Takes the workspace apart, in pieces of 16 bytes; with null it only counts.
struct Pieces {
  std::byte* base;
  int64_t taken = 0;
  template <class T>
  void take(T*& piece, int64_t count) {
    piece = reinterpret_cast<T*>(base + taken);
    taken += (count * static_cast<int64_t>(sizeof(T)) + 15) / 16 * 16;
  }
};

inline void place_search(Problem& p, Pieces& pieces) {
  pieces.take(p.basins, p.places);
  pieces.take(p.seeds, p.places);
  pieces.take(p.list, p.list_room());
  pieces.take(p.other_list, p.list_room());
  pieces.take(p.best, p.most_minima);
  pieces.take(p.ends, p.most_minima);
  pieces.take(p.parents, p.most_minima);
  pieces.take(p.next, p.most_minima);
  pieces.take(p.rounds_before, p.most_minima);
}
inline void place_sort(Problem& p, Pieces& pieces) {
  pieces.take(p.counters, kCounters);
  p.sort_bytes = sort_bytes_of(p.list_room());
  std::byte* sort_space;
  pieces.take(sort_space, static_cast<int64_t>(p.sort_bytes));
  p.sort_space = sort_space;
}
inline int64_t place_memory(Problem& p, void* workspace) {
  Pieces pieces{static_cast<std::byte*>(workspace)};
  pieces.take(p.keys, p.places);
  place_search(p, pieces);
  place_sort(p, pieces);
  return pieces.taken;
}

inline Problem problem_of(const Extent3& extent) {
  Problem p{};
  p.z = static_cast<int>(extent.z), p.y = static_cast<int>(extent.y), p.x = static_cast<int>(extent.x);
  p.row = p.x + 2, p.slice = (p.y + 2) * (p.x + 2);
  p.voxels = extent.voxels();
  p.places = (extent.z + 2) * p.slice;
  p.most_minima = (p.voxels + 1) / 2 + 1;  // no two minima touch; and the space around
  return p;
}

class PairFinder {
 public:
  PairFinder(const Problem& problem, cuda::Stream stream) : p_(problem), stream_(stream) {}

  int64_t find(PersistencePair* pairs, const float* values) {
    reset(kMinima, kCounters);
    launch(fill_keys, p_.places, stream_, p_, values);
    find_ends();
    return write(pairs);
  }

 protected:
  // Of each component, given the keys: the edge at which it ends.
  void find_ends() {
    find_basins();
    const uint32_t alive = end_components();
    if (alive > 1) end_on_host(alive);
  }
  void reset(Counter counter, int count = 1) {
    cuda::check(cudaMemsetAsync(p_.counters + counter, 0, sizeof(uint32_t) * static_cast<size_t>(count), stream_),
                "persistence");
  }
  template <class T>
  void to_host(T* host, const T* device, size_t count) {
    cuda::check(cudaMemcpyAsync(host, device, sizeof(T) * count, cudaMemcpyDeviceToHost, stream_), "persistence");
    cuda::check(cudaStreamSynchronize(stream_), "persistence");
  }
  uint32_t read(Counter counter) {
    uint32_t value = 0;
    to_host(&value, p_.counters + counter, 1);
    return value;
  }

  void sort(uint64_t* items, uint64_t* space, int64_t count) {
    if (count < 2) return;
    cub::DoubleBuffer<uint64_t> buffers(items, space);
    VOX_ASSERT(sort_bytes_of(count) <= p_.sort_bytes);
    size_t bytes = p_.sort_bytes;
    cuda::check(cub::DeviceRadixSort::SortKeys(p_.sort_space, bytes, buffers, static_cast<int>(count), 0, 64, stream_),
                "sort");
    if (buffers.Current() == items) return;
    cuda::check(cudaMemcpyAsync(items, buffers.Current(), sizeof(uint64_t) * static_cast<size_t>(count),
                                cudaMemcpyDeviceToDevice, stream_),
                "sort");
  }

  Problem p_;
  cuda::Stream stream_;

 private:
  void find_basins() {
    launch(lead_down, p_.voxels, stream_, p_);
    uint32_t found[2];  // minima, saddles
    to_host(found, p_.counters, 2);
    p_.minima = found[kMinima], p_.saddles = found[kSaddles];
    for (const int most_hops : {16, 16, 16, INT32_MAX}) launch(follow, p_.voxels, stream_, p_, most_hops);
    sort(p_.list, p_.other_list, p_.minima);
    sort(p_.list_of_saddles(), p_.other_list, p_.saddles);
    launch(number_minima, p_.minima, stream_, p_);
    launch(number_basins, p_.voxels, stream_, p_);
  }

  // After a step that joined components: everybody learns whom it belongs to. Returns how many were joined.
  uint32_t spread() {
    uint32_t found[2];  // ended, on the way
    do {
      reset(kOnTheWay);
      launch(follow_next, p_.minima, stream_, p_);
      to_host(found, p_.counters + kEnded, 2);
    } while (found[1] > 0);
    return found[0];
  }

  // Returns how many components are left.
  uint32_t end_components() {
    for (uint32_t alive = p_.minima;;) {
      if (alive == 1) return 1;
      reset(kEnded);
      launch(find_first_edges, p_.saddles, stream_, p_);
      launch(end_younger, p_.minima, stream_, p_);
      const uint32_t ended = spread();
      VOX_ASSERT(ended > 0 && ended < alive);
      alive -= ended;
      if (ended < alive / kSlowRound) return alive;
    }
  }

  std::vector<Edge> spanning_edges(uint32_t components) {
    Edge* const chosen = reinterpret_cast<Edge*>(p_.other_list);
    cuda::check(
        cudaMemcpyAsync(p_.rounds_before, p_.parents, sizeof(uint32_t) * p_.minima, cudaMemcpyDeviceToDevice, stream_),
        "persistence");
    uint32_t found = 0;
    while (found + 1 < components) {
      reset(kEnded);
      launch(find_first_edges, p_.saddles, stream_, p_);
      launch(join_all, p_.minima, stream_, p_, chosen, found);
      const uint32_t joined = spread();
      VOX_ASSERT(joined > 0);
      found += joined;
    }
    std::vector<Edge> edges(found);
    to_host(edges.data(), chosen, edges.size());
    return edges;
  }

  void end_on_host(uint32_t components) {
    std::vector<Edge> edges = spanning_edges(components);
    std::sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) { return a.edge < b.edge; });
    UnionFind older(p_.minima);
    std::vector<Ending> endings;
    for (const Edge& edge : edges) {
      const uint32_t a = older.find(edge.a), b = older.find(edge.b);
      endings.push_back({edge.edge, std::max(a, b)});
      older.unite(a, b);
    }
    Ending* const there = reinterpret_cast<Ending*>(p_.other_list);
    cuda::check(
        cudaMemcpyAsync(there, endings.data(), sizeof(Ending) * endings.size(), cudaMemcpyHostToDevice, stream_),
        "persistence");
    launch(keep_endings, static_cast<int64_t>(endings.size()), stream_, p_, there,
           static_cast<int64_t>(endings.size()));
    cuda::check(cudaStreamSynchronize(stream_), "persistence");  // until the list has left the host
  }

  int64_t write(PersistencePair* pairs) {
    uint64_t *const listed = p_.other_list, *const space = p_.best;  // which no round needs any more
    launch(list_pairs, p_.minima - 1, stream_, p_, listed);
    const uint32_t count = read(kPairs);
    sort(listed, space, count);
    launch(write_pairs, std::max<int64_t>(count, 1), stream_, p_, pairs, listed, int64_t{count});
    return count + (p_.reversed ? 0 : 1);
  }
};

}  // namespace vox::persistence
