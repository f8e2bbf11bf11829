// The steps of persistence_cuda.cu, one thread an item.
#pragma once

#include <cstdint>

#include "kernels/cuda_device.cuh"
#include "kernels/neighbourhood.h"
#include "kernels/persistence.h"

namespace vox::persistence {

constexpr int kThreads = 256, kDirectionBits = 5, kNumberBits = 29;
constexpr int64_t kMostPlaces = int64_t{1} << kNumberBits;  // saddle, direction and component fit into 64 bits
constexpr uint64_t kNoEdge = ~uint64_t{0};

enum Counter : int { kMinima, kSaddles, kEnded, kOnTheWay, kPairs, kRows, kColumns, kWaiting, kCounters };

struct Edge {  // that Boruvka chose, between two components of the rounds before
  uint64_t edge;
  uint32_t a, b;
};
struct Ending {
  uint64_t edge;
  uint32_t component;
};

// The volume with a border of one voxel, and what becomes of its components. `reversed`: from the last voxel to the
// first, in a space that comes before all of them.
struct Problem {
  int z, y, x, row, slice;
  bool reversed, falling, by_faces;
  int64_t voxels, places, most_minima;

  int32_t* keys;                // of each place
  uint32_t* basins;             // of each place: where it leads, later its basin's number
  uint32_t* seeds;              // of each saddle: directions of its edges; of the first voxel of a basin: the number
  uint64_t *list, *other_list;  // key and place: minima from the front, saddles from the back
  uint64_t *best, *ends;        // of each component: its first edge to another one, the edge at which it ended
  uint32_t *parents, *next;     // of each component: the one that it belongs to, and from the next round on
  uint32_t* rounds_before;      // `parents` when Boruvka's rounds began
  uint32_t* counters;
  void* sort_space;
  size_t sort_bytes;
  uint32_t minima = 0, saddles = 0;

  __device__ uint32_t place_of_item(int64_t item) const {
    const int at = static_cast<int>(item), line = at / x;
    return static_cast<uint32_t>((line / y + 1) * slice + (line % y + 1) * row + at % x + 1);
  }
  __host__ __device__ int64_t voxel(uint32_t place) const {
    const int at = static_cast<int>(place);
    const int64_t in_order = ((at / slice - 1) * y + at % slice / row - 1) * x + at % row - 1;
    return reversed ? voxels - 1 - in_order : in_order;
  }
  __device__ uint32_t neighbour(uint32_t place, int direction) const {
    return place +
           static_cast<uint32_t>((direction / 9 - 1) * slice + (direction / 3 % 3 - 1) * row + direction % 3 - 1);
  }
  __device__ uint64_t entry(uint32_t place) const {
    return uint64_t{static_cast<uint32_t>(keys[place]) ^ 0x80000000u} << 32 | place;
  }
  __device__ uint32_t saddle(uint64_t edge) const {
    return static_cast<uint32_t>(list_of_saddles()[edge >> kDirectionBits]);
  }
  __host__ __device__ uint64_t* list_of_saddles() const { return list + list_room() - saddles; }
  __host__ __device__ int64_t list_room() const { return voxels + 4; }
};

__device__ __forceinline__ int64_t item_of_thread() {
  return int64_t{blockIdx.x} * kThreads + threadIdx.x;
}

// As order_key of kernels/persistence_parts.h; a NaN does not come before or after the border.
static __device__ int32_t key_of(float value, const Problem& p) {
  int32_t bits = __float_as_int(value) ^ (p.falling ? INT32_MIN : 0);
  if (bits == INT32_MIN) bits = 0;
  const int32_t key = bits ^ ((bits >> 31) & 0x7fffffff);
  return ::max(INT32_MIN + 1, ::min(INT32_MAX - 1, p.reversed ? ~key : key));
}

static __global__ void fill_keys(Problem p, const float* values) {
  const int64_t place = item_of_thread();
  if (place >= p.places) return;
  const int z = static_cast<int>(place / p.slice) - 1, y = static_cast<int>(place % p.slice) / p.row - 1;
  const int x = static_cast<int>(place % p.row) - 1;
  const bool inside = z >= 0 && z < p.z && y >= 0 && y < p.y && x >= 0 && x < p.x;
  if (inside) p.keys[place] = key_of(values[p.voxel(static_cast<uint32_t>(place))], p);
  if (inside) return;
  p.keys[place] = p.reversed ? INT32_MIN : INT32_MAX;
  p.basins[place] = 0;
  if (place == 0 && p.reversed) p.list[atomicAdd(p.counters + kMinima, 1u)] = p.entry(0);  // the space is a basin
}

static __device__ uint32_t earlier_neighbours(const Problem& p, uint32_t place) {
  const int32_t key = p.keys[place];
  uint32_t earlier = 0;
#pragma unroll
  for (int i = 0; i < 27; ++i) {
    if (i == static_cast<int>(neighbourhood::kMiddleBit)) continue;
    const int32_t there = p.keys[p.neighbour(place, i)];
    if (i < static_cast<int>(neighbourhood::kMiddleBit) ? there <= key : there < key) earlier |= 1u << i;
  }
  return earlier;
}

// Where a voxel leads, and one edge to each component of its earlier neighbours but the one it leads to.
static __global__ void lead_down(Problem p) {
  const int64_t item = item_of_thread();
  if (item >= p.voxels) return;
  const uint32_t place = p.place_of_item(item), earlier = earlier_neighbours(p, place);
  const uint32_t touched = earlier & (p.by_faces ? neighbourhood::kFaces : neighbourhood::kCorners);
  if (touched == 0) {
    p.basins[place] = place;
    p.list[atomicAdd(p.counters + kMinima, 1u)] = p.entry(place);
    return;
  }
  p.basins[place] = p.neighbour(place, __ffs(static_cast<int>(touched)) - 1);
  uint32_t seeds = 0;
  for (uint32_t left = touched; left != 0;) {
    const uint32_t seed = left & (0 - left);
    left &= ~(p.by_faces ? neighbourhood::connected_by_faces(seed, earlier)
                         : neighbourhood::connected_by_corners(seed, earlier));
    seeds |= seed;
  }
  seeds &= seeds - 1;
  if (seeds == 0) return;
  p.seeds[place] = seeds;
  p.list[p.list_room() - 1 - atomicAdd(p.counters + kSaddles, 1u)] = p.entry(place);
}

// Whatever other threads have written meanwhile leads to the same end.
static __global__ void follow(Problem p, int most_hops) {
  const int64_t item = item_of_thread();
  if (item >= p.voxels) return;
  uint32_t* const own = p.basins + p.place_of_item(item);
  uint32_t at = *own;
  for (int i = 0; i < most_hops; ++i) {
    const uint32_t after = __ldcg(p.basins + at);
    if (after == at) break;
    at = after;
  }
  *own = at;
}

static __global__ void number_minima(Problem p) {
  const int64_t number = item_of_thread();
  if (number >= p.minima) return;
  p.seeds[static_cast<uint32_t>(p.list[number])] = static_cast<uint32_t>(number);
  p.parents[number] = static_cast<uint32_t>(number);
  p.best[number] = kNoEdge;
}

static __global__ void number_basins(Problem p) {
  const int64_t item = item_of_thread();
  if (item >= p.voxels) return;
  uint32_t* const own = p.basins + p.place_of_item(item);
  *own = p.seeds[*own];
}

static __device__ void lower(uint64_t* least, uint64_t edge) {
  if (__ldcg(least) > edge) atomicMin(reinterpret_cast<unsigned long long*>(least), edge);
}

static __global__ void find_first_edges(Problem p) {
  const int64_t saddle = item_of_thread();
  if (saddle >= p.saddles) return;
  const uint32_t place = static_cast<uint32_t>(p.list_of_saddles()[saddle]), seeds = p.seeds[place];
  if (seeds == 0) return;
  const uint32_t own = p.parents[p.basins[place]];
  uint32_t useful = 0;
  for (uint32_t left = seeds; left != 0; left &= left - 1) {
    const int direction = __ffs(static_cast<int>(left)) - 1;
    const uint32_t other = p.parents[p.basins[p.neighbour(place, direction)]];
    if (other == own) continue;
    useful |= 1u << direction;
    const uint64_t edge = static_cast<uint64_t>(saddle) << kDirectionBits | static_cast<uint32_t>(direction);
    lower(p.best + own, edge);
    lower(p.best + other, edge);
  }
  if (useful != seeds) p.seeds[place] = useful;
}

struct Ends {
  uint32_t a, b;
};
static __device__ Ends basins_at(const Problem& p, uint64_t edge) {
  const uint32_t place = p.saddle(edge);
  const int direction = static_cast<int>(edge & ((1 << kDirectionBits) - 1));
  return {p.basins[place], p.basins[p.neighbour(place, direction)]};
}
static __device__ uint32_t other_end(const Problem& p, uint32_t component) {
  const Ends basins = basins_at(p, p.best[component]);
  const uint32_t a = p.parents[basins.a], b = p.parents[basins.b];
  return a == component ? b : a;
}

// A component that the other one's first edge leads to is joined with it before this one comes.
static __global__ void end_younger(Problem p) {
  constexpr int kLooks = 8;
  const int64_t item = item_of_thread();
  if (item >= p.minima || p.parents[item] != item) return;
  const uint32_t component = static_cast<uint32_t>(item);
  p.next[component] = component;
  const uint64_t edge = p.best[component];
  if (edge == kNoEdge) return;
  uint32_t other = other_end(p, component);
  for (int look = 1; look < kLooks && other > component && p.best[other] != p.best[component]; ++look)
    other = other_end(p, other);
  if (other >= component) return;
  p.next[component] = other;
  p.ends[component] = edge;
  atomicAdd(p.counters + kEnded, 1u);
}

static __global__ void join_all(Problem p, Edge* chosen, uint32_t chosen_before) {
  const int64_t item = item_of_thread();
  if (item >= p.minima || p.parents[item] != item) return;
  const uint32_t component = static_cast<uint32_t>(item);
  p.next[component] = component;
  const uint64_t edge = p.best[component];
  if (edge == kNoEdge) return;
  const uint32_t other = other_end(p, component);
  if (p.best[other] == edge && component < other) return;  // both would go
  p.next[component] = other;
  const Ends basins = basins_at(p, edge);
  chosen[chosen_before + atomicAdd(p.counters + kEnded, 1u)] = {edge, p.rounds_before[basins.a],
                                                                p.rounds_before[basins.b]};
}

// A few steps, counting who has not arrived: the next time everybody's steps are longer.
static __global__ void follow_next(Problem p) {
  constexpr int kSteps = 16;
  const int64_t number = item_of_thread();
  if (number >= p.minima) return;
  uint32_t at = static_cast<uint32_t>(number);
  bool arrived = false;
  for (int i = 0; i < kSteps && !arrived; ++i) {
    const uint32_t after = __ldcg(p.next + at);
    arrived = after == at;
    at = after;
  }
  p.parents[number] = p.next[number] = at;
  p.best[number] = kNoEdge;
  if (!arrived) atomicAdd(p.counters + kOnTheWay, 1u);
}

static __global__ void keep_endings(Problem p, const Ending* endings, int64_t count) {
  const int64_t item = item_of_thread();
  if (item < count) p.ends[endings[item].component] = endings[item].edge;
}

// The oldest never ends; features that end at the level of their birth are left out.
static __global__ void list_pairs(Problem p, uint64_t* pairs) {
  const int64_t number = item_of_thread() + 1;
  if (number >= p.minima) return;
  const uint64_t edge = p.ends[number];
  if (p.keys[static_cast<uint32_t>(p.list[number])] == p.keys[p.saddle(edge)]) return;
  pairs[atomicAdd(p.counters + kPairs, 1u)] = edge << kNumberBits | static_cast<uint64_t>(number);
}

static __global__ void write_pairs(Problem p, PersistencePair* pairs, const uint64_t* sorted, int64_t count) {
  const int64_t item = item_of_thread();
  const int64_t first = p.reversed ? 0 : 1;
  if (item == 0 && !p.reversed) pairs[0] = {p.voxel(static_cast<uint32_t>(p.list[0])), PersistencePair::kNever};
  if (item >= count) return;
  const uint64_t begin = p.list[sorted[item] & ((uint64_t{1} << kNumberBits) - 1)];
  const int64_t started = p.voxel(static_cast<uint32_t>(begin)), ended = p.voxel(p.saddle(sorted[item] >> kNumberBits));
  if (p.reversed)
    pairs[first + item] = {ended, started};
  else
    pairs[first + item] = {started, ended};
}

}  // namespace vox::persistence
