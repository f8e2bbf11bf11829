// The steps of kernels/tunnel_steps.h as kernels, one thread an item, and keys of the grid that they work on.
#pragma once

#include "kernels/persistence_steps.cuh"
#include "kernels/tunnel_steps.h"

namespace vox::persistence {

struct Tunnels {
  tunnels::Work work;
  int64_t places, most_rows, most_columns;
  uint64_t *rows, *columns;
  uint32_t *rest, *edges, *cubes;  // three of each row, four and two of each column
  uint32_t* counters;
};

// Voxels as vertices amid a border that comes last; as cubes: reversed, in a space of one voxel that comes first.
static __global__ void fill_tunnel_keys(Problem p, const float* values, bool cubes) {
  const int64_t place = item_of_thread();
  if (place >= p.places) return;
  const int z = static_cast<int>(place / p.slice) - 1, y = static_cast<int>(place % p.slice) / p.row - 1;
  const int x = static_cast<int>(place % p.row) - 1;
  p.basins[place] = 0;
  const auto inside = [&](int margin) {
    return z >= margin && z < p.z - margin && y >= margin && y < p.y - margin && x >= margin && x < p.x - margin;
  };
  if (!inside(0)) {
    p.keys[place] = tunnels::kBorderKey;
  } else if (cubes) {
    const int64_t sy = p.y - 2, sx = p.x - 2, voxel = ((z - 1) * sy + y - 1) * sx + x - 1;
    p.keys[place] = inside(1) ? ~key_of(values[(p.z - 2) * sy * sx - 1 - voxel], p) : INT32_MIN;
  } else {
    p.keys[place] = key_of(values[(static_cast<int64_t>(z) * p.y + y) * p.x + x], p);
  }
}

static __device__ void append(uint64_t* list, uint32_t* count, int64_t room, uint64_t entry) {
  const uint32_t at = atomicAdd(count, 1u);
  if (at < room) list[at] = entry;
}

static __global__ void take_stars_apart(Tunnels t) {
  const int64_t place = item_of_thread();
  if (place >= t.places) return;
  tunnels::take_star_apart(
      t.work, [&](uint64_t column) { append(t.columns, t.counters + kColumns, t.most_columns, column); },
      static_cast<uint32_t>(place));
}

static __global__ void follow_up(Tunnels t, int most_hops) {
  const int64_t place = item_of_thread();
  if (place >= t.places) return;
  uint32_t at = t.work.up[place];
  for (int i = 0; i < most_hops; ++i) {
    const uint32_t after = __ldcg(t.work.up + at);
    if (after == at) break;
    at = after;
  }
  t.work.up[place] = at;
}

// Edges at which a component ended are no rows: they are critical, since a voxel's seeds are (kernels/star_gradient.h).
static __global__ void drop_joining_edges(Tunnels t, Problem p) {
  const int64_t number = item_of_thread() + 1;
  if (number >= p.minima) return;
  const uint64_t end = p.ends[number];
  const uint32_t bit = 1u << (end & ((1 << kDirectionBits) - 1));
  t.work.links[t.work.cells.edge_at(p.saddle(end), star::first_direction(bit))] = links::kNothing;
}

static __global__ void settle_edges(Tunnels t, int most_hops) {
  const int64_t edge = item_of_thread();
  const bool waits = edge < 3 * t.places && !tunnels::settle(t.work, static_cast<uint32_t>(edge), most_hops);
  const int waiting = __syncthreads_count(waits);
  if (threadIdx.x == 0 && waiting > 0) atomicAdd(t.counters + kWaiting, static_cast<uint32_t>(waiting));
}

static __global__ void list_rows(Tunnels t) {
  const int64_t edge = item_of_thread();
  if (edge >= 3 * t.places) return;
  tunnels::give_up_waiting(t.work, static_cast<uint32_t>(edge));
  if (tunnels::is_row(static_cast<uint32_t>(edge), t.work.links[edge]))
    append(t.rows, t.counters + kRows, t.most_rows, tunnels::row_of(t.work, static_cast<uint32_t>(edge)));
}

static __global__ void write_rests(Tunnels t, int64_t count) {
  const int64_t row = item_of_thread();
  if (row < count) tunnels::write_rest(t.work, t.rows[row], t.rest + 3 * row);
}
static __global__ void write_columns(Tunnels t, int64_t count) {
  const int64_t column = item_of_thread();
  if (column < count) tunnels::write_column(t.work, t.columns[column], t.edges + 4 * column, t.cubes + 2 * column);
}
static __global__ void number_rows(Tunnels t, int64_t count) {
  const int64_t row = item_of_thread();
  if (row < count) tunnels::number_row(t.work, t.rows[row], static_cast<uint32_t>(row));
}
static __global__ void put_numbers(Tunnels t, uint32_t* edges, int64_t count) {
  const int64_t item = item_of_thread();
  if (item < count) tunnels::put_number(t.work, edges + item);
}

}  // namespace vox::persistence
