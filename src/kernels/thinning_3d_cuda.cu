// One kernel thins volumes from beginning to end, a group of blocks each, which wait for one another between the steps
// (all are resident: a cooperative launch). As on the CPU a direction first lists its candidates. They go in order
// there; here each is decided as soon as the candidates before it that are not decided yet cannot matter any more:
// whichever of them go, its neighbours hold together, or they fall apart. The first candidate that is not decided waits
// for none, so there is always one that can be. Who decides when thus changes with the timing, but never what.
//
// A word of 64 bits holds 32 voxels and which of them are not decided: one store changes both. It belongs to one
// thread; words of zeros lie around rows, slices and the volume.
#include <algorithm>

#include "kernels/cuda_device.cuh"
#include "kernels/neighbourhood.h"
#include "kernels/thinning_cuda.h"

namespace vox {
namespace {

using neighbourhood::kFaces, neighbourhood::kMiddle;

constexpr int kThreads = 512;
constexpr int kResident = 2;  // blocks that a multiprocessor holds

struct Layout {
  int z, y, x;
  int words, stride, slice;  // words of a row, and from row to row, from slice to slice
  int first, last, size;     // words of voxels lie from first to last
};

struct Words {  // of one volume
  uint64_t* voxels;
  uint32_t *candidates, *settled;  // settled: looked at, and not to go while its neighbours stay
};

__device__ __forceinline__ uint64_t load(const uint64_t* word) {
  uint64_t value;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}
__device__ __forceinline__ uint32_t load(const uint32_t* word) {
  uint32_t value;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}
__device__ __forceinline__ void store(uint64_t* word, uint32_t bits, uint32_t undecided) {
  const uint64_t value = uint64_t{undecided} << 32 | bits;
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}
__device__ __forceinline__ uint32_t bits_of(uint64_t word) {
  return static_cast<uint32_t>(word);
}
__device__ __forceinline__ uint32_t undecided_of(uint64_t word) {
  return static_cast<uint32_t>(word >> 32);
}

// The blocks of a volume. Two counters in turn, of blocks that came and of those with something to tell.
struct Group {
  unsigned long long* counters;
  uint32_t blocks;
  uint32_t round = 0, told[2] = {0, 0};

  // Waits for all threads of the group; whether any of them had `mine`.
  __device__ bool any(bool mine) {
    __shared__ bool of_group;
    const bool of_block = __syncthreads_or(mine) != 0;
    if (blocks == 1) return of_block;
    if (threadIdx.x == 0) {
      const uint32_t turn = round % 2, wanted = blocks * (round / 2 + 1);
      __threadfence();
      atomicAdd(counters + turn, of_block ? 0x100000001ull : 1ull);
      uint64_t seen;
      do seen = load(reinterpret_cast<const uint64_t*>(counters + turn));
      while (bits_of(seen) != wanted);
      __threadfence();
      of_group = undecided_of(seen) != told[turn];
      told[turn] = undecided_of(seen);
    }
    ++round;
    __syncthreads();
    return of_group;
  }
};

// What is gone with the voxel in the middle, of the union of closed cubes: it, and whatever no neighbour shares.
__device__ __forceinline__ bool keeps_euler(uint32_t neighbours) {
  // By their lowest voxels: an octal digit is a row, three are a slice.
  constexpr uint32_t kCornersOfCube = 033033, kAlongX = 022022, kAlongY = 030030, kAlongZ = 033000;
  const uint32_t x = neighbours | neighbours >> 1, y = neighbours | neighbours >> 3, xy = x | x >> 3;
  const int corners = __popc(~(xy | xy >> 9) & kCornersOfCube);
  const int edges = __popc(~(y | y >> 9) & kAlongX) + __popc(~(x | x >> 9) & kAlongY) + __popc(~xy & kAlongZ);
  return corners - edges + __popc(~neighbours & kFaces) == 1;
}

__device__ __forceinline__ uint32_t first_bit(uint32_t set) {
  return set & (0 - set);
}

__device__ __forceinline__ bool may_go(uint32_t around) {
  constexpr int kEndOfLine = 1;  // without the voxel itself
  const uint32_t neighbours = around & ~kMiddle;
  return __popc(neighbours) != kEndOfLine && keeps_euler(neighbours) &&
         neighbourhood::connected_by_corners(first_bit(neighbours), neighbours) == neighbours;
}

enum class Outcome { kWaits, kStays, kGoes };

// Of the neighbours, those that are not decided may be there or not when the turn comes.
__device__ __forceinline__ Outcome decide(uint32_t neighbours, uint32_t undecided) {
  using namespace neighbourhood;
  const uint32_t certain = neighbours & ~undecided, seed = first_bit(certain);
  if ((certain & ~connected_by_corners(seed, neighbours)) != 0) return Outcome::kStays;
  if (undecided == 0) return Outcome::kGoes;
  const bool all_touch = (undecided & ~grown_z(grown_y(grown_x(certain)))) == 0;
  return all_touch && connected_by_corners(seed, certain) == certain ? Outcome::kGoes : Outcome::kWaits;
}

// Bits -1 to 32 of a row, the first one lowest.
__device__ __forceinline__ uint64_t widened(uint32_t before, uint32_t here, uint32_t after) {
  return before >> 31 | uint64_t{here} << 1 | uint64_t{after & 1} << 33;
}
__device__ __forceinline__ uint32_t three_at(uint64_t row, int x) {
  return static_cast<uint32_t>(row >> x) & 7;
}
// Rows of the 3x3x3 voxels are counted from 0 to 8; the voxel's own is 4.
__device__ __forceinline__ int row_offset(const Layout& layout, int row) {
  return (row / 3 - 1) * layout.slice + (row % 3 - 1) * layout.stride;
}

// Where what lies beside a voxel is found: in the word at `offset`, and along x partly in its own.
struct Direction {
  int offset, dx;
};
__device__ __forceinline__ Direction direction(const Layout& layout, int number) {
  switch (number) {
    case 0:
      return {-layout.stride, 0};
    case 1:
      return {layout.stride, 0};
    case 2:
      return {1, 1};
    case 3:
      return {-1, -1};
    case 4:
      return {layout.slice, 0};
    default:
      return {-layout.slice, 0};
  }
}
__device__ __forceinline__ uint32_t beside(uint32_t bits, uint32_t other, int dx) {
  return dx == 0 ? other : dx > 0 ? bits >> 1 | other << 31 : bits << 1 | other >> 31;
}

__device__ uint32_t those_that_may_go(const uint64_t* word, uint32_t border, const Layout& layout) {
  uint64_t rows[9];
#pragma unroll
  for (int row = 0; row < 9; ++row) {
    const uint64_t* there = word + row_offset(layout, row);
    rows[row] = widened(bits_of(load(there - 1)), bits_of(load(there)), bits_of(load(there + 1)));
  }
  uint32_t found = 0;
  for (; border != 0; border &= border - 1) {
    const int x = __ffs(static_cast<int>(border)) - 1;
    uint32_t around = 0;
#pragma unroll
    for (int row = 0; row < 9; ++row) around |= three_at(rows[row], x) << (3 * row);
    if (may_go(around)) found |= 1u << x;
  }
  return found;
}

struct Threads {  // of a group
  int number, count;
};

__device__ bool list_candidates(const Words& words, const Layout& layout, const Threads& threads, int number) {
  const Direction side = direction(layout, number);
  bool any = false;
  for (int i = layout.first + threads.number; i <= layout.last; i += threads.count) {
    const uint32_t bits = bits_of(load(words.voxels + i)), other = bits_of(load(words.voxels + i + side.offset));
    const uint32_t settled = load(words.settled + i), before = load(words.candidates + i);
    const uint32_t border = bits & ~settled & ~beside(bits, other, side.dx);
    const uint32_t found = border == 0 ? 0 : those_that_may_go(words.voxels + i, border, layout);
    if (found != before) words.candidates[i] = found;
    if (border != found) words.settled[i] = settled | (border & ~found);
    if (found != 0) store(words.voxels + i, bits, found);
    any |= found != 0;
  }
  return any;
}

// A word of candidates and what lies around it: rows before it change while they are decided, of rows after it counts
// what was there before this direction.
struct Deciding {
  uint32_t bits = 0, undecided = 0, gone = 0;
  uint32_t after = 0;  // of each voxel, the next one
  uint64_t later[4];
  uint64_t earlier[4], earlier_undecided[4];
  uint32_t before = 0, before_undecided = 0;  // of each voxel, the one before; only that of the first is needed here

  __device__ void begin(const Words& words, const Layout& layout, int i) {
    const auto at_first = [&](int j) { return bits_of(load(words.voxels + j)) | load(words.candidates + j); };
    bits = bits_of(load(words.voxels + i));
    after = bits >> 1 | at_first(i + 1) << 31;
    gone = 0;
#pragma unroll
    for (int row = 0; row < 4; ++row) {
      const int there = i + row_offset(layout, row + 5);
      later[row] = widened(at_first(there - 1), at_first(there), at_first(there + 1));
    }
  }
  __device__ void look(const uint64_t* word, const Layout& layout) {
    const uint64_t left = load(word - 1);
    before = bits_of(left) >> 31;
    before_undecided = undecided_of(left) >> 31;
#pragma unroll
    for (int row = 0; row < 4; ++row) {
      const uint64_t* there = word + row_offset(layout, row);
      const uint64_t a = load(there - 1), b = load(there), c = load(there + 1);
      earlier[row] = widened(bits_of(a), bits_of(b), bits_of(c));
      earlier_undecided[row] = widened(undecided_of(a), undecided_of(b), undecided_of(c));
    }
  }
  __device__ Outcome outcome(int x) const {
    uint32_t neighbours = ((bits << 1 | before) >> x & 1) << 12 | (after >> x & 1) << 14;
    uint32_t open = ((undecided << 1 | before_undecided) >> x & 1) << 12;
#pragma unroll
    for (int row = 0; row < 4; ++row) {
      neighbours |= three_at(earlier[row], x) << (3 * row) | three_at(later[row], x) << (3 * row + 15);
      open |= three_at(earlier_undecided[row], x) << (3 * row);
    }
    return decide(neighbours, open);
  }
  // Decides what can be; others see each decision at once.
  __device__ void advance(uint64_t* word) {
    for (uint32_t left = undecided; left != 0; left &= left - 1) {
      const Outcome found = outcome(__ffs(static_cast<int>(left)) - 1);
      if (found == Outcome::kWaits) continue;
      const uint32_t voxel = first_bit(left);
      undecided &= ~voxel;
      if (found == Outcome::kGoes) bits &= ~voxel, gone |= voxel;
      store(word, bits, undecided);
    }
  }
};

__device__ void unsettle_around(uint32_t* settled, uint32_t gone, const Layout& layout) {
  for (int row = 0; row < 9; ++row) {
    uint32_t* there = settled + row_offset(layout, row);
    atomicAnd(there, ~(gone | gone << 1 | gone >> 1));
    if ((gone & 1) != 0) atomicAnd(there - 1, ~(1u << 31));
    if (gone >> 31 != 0) atomicAnd(there + 1, ~1u);
  }
}

// One loop for all words of a thread, so that no lane of a warp waits for others of it at another place.
__device__ bool take_away(const Words& words, const Layout& layout, const Threads& threads) {
  Deciding word;
  bool any = false;
  for (int i = layout.first + threads.number - threads.count;;) {
    if (word.undecided == 0) {
      if (word.gone != 0) unsettle_around(words.settled + i, word.gone, layout);
      do i += threads.count;
      while (i <= layout.last && (word.undecided = load(words.candidates + i)) == 0);
      if (i > layout.last) return any;
      word.begin(words, layout, i);
    }
    word.look(words.voxels + i, layout);
    word.advance(words.voxels + i);
    any |= word.gone != 0;
  }
}

__device__ __forceinline__ Words words_of(uint64_t* workspace, const Layout& layout, int64_t volume) {
  uint64_t* voxels = workspace + volume * 2 * layout.size;
  auto* candidates = reinterpret_cast<uint32_t*>(voxels + layout.size);
  return {voxels, candidates, candidates + layout.size};
}

// grid: blocks of a group, groups. `counters`: two for each volume, 0 at first.
__global__ void __launch_bounds__(kThreads, kResident)
    thin_volumes(uint64_t* workspace, unsigned long long* counters, int64_t volumes, Layout layout) {
  const Threads threads{static_cast<int>(blockIdx.x * kThreads + threadIdx.x), static_cast<int>(gridDim.x * kThreads)};
  const int directions = layout.z == 1 ? 4 : 6;  // a single slice is thinned within itself
  for (int64_t volume = blockIdx.y; volume < volumes; volume += gridDim.y) {
    const Words words = words_of(workspace, layout, volume);
    Group group{counters + 2 * volume, gridDim.x};
    for (bool changed = true; changed;) {
      changed = false;
      for (int i = 0; i < directions; ++i)
        if (group.any(list_candidates(words, layout, threads, i)))
          changed |= group.any(take_away(words, layout, threads));
    }
  }
}

// A warp for each word, those of zeros around the volume too. grid: blocks of a volume, volumes.
__global__ void __launch_bounds__(kThreads) pack_volumes(uint64_t* workspace, const uint8_t* mask, Layout layout) {
  const int64_t volume = blockIdx.y;
  const int64_t thread = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int lane = static_cast<int>(thread % 32), i = static_cast<int>(thread / 32);
  if (i >= layout.size) return;
  const int row = (i + layout.stride - 1) / layout.stride - 1, word = (i + layout.stride - 1) % layout.stride;
  const int z = row / (layout.y + 1) - 1, y = row % (layout.y + 1) - 1, x = 32 * word + lane;
  const bool inside = i > 0 && z >= 0 && z < layout.z && y >= 0 && y < layout.y && x < layout.x;
  const int64_t voxel = ((volume * layout.z + z) * layout.y + y) * layout.x + x;
  const uint32_t bits = __ballot_sync(~0u, inside && mask[voxel] != 0);
  if (lane != 0) return;
  const Words words = words_of(workspace, layout, volume);
  words.voxels[i] = bits;
  words.candidates[i] = words.settled[i] = 0;
}

__global__ void __launch_bounds__(kThreads) unpack_volumes(uint8_t* out, uint64_t* workspace, Layout layout) {
  const int64_t volume = blockIdx.y, voxels = int64_t{layout.z} * layout.y * layout.x;
  const int64_t voxel = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (voxel >= voxels) return;
  const int x = static_cast<int>(voxel % layout.x), row = static_cast<int>(voxel / layout.x);
  const int i = layout.first + row / layout.y * layout.slice + row % layout.y * layout.stride + x / 32;
  out[volume * voxels + voxel] = bits_of(words_of(workspace, layout, volume).voxels[i]) >> (x % 32) & 1;
}

Layout layout_of(const Extent3& extent) {
  const int64_t words = (extent.x + 31) / 32, stride = words + 1;
  const int64_t size = ((extent.z + 2) * (extent.y + 1) + 1) * stride + 1;
  VOX_CHECK(size < int64_t{1} << 26, "thinning on the GPU: a volume of ", extent,
            " is too large; thin parts of it, or on the CPU");
  Layout layout{static_cast<int>(extent.z), static_cast<int>(extent.y), static_cast<int>(extent.x)};
  layout.words = static_cast<int>(words);
  layout.stride = static_cast<int>(stride);
  layout.slice = layout.stride * (layout.y + 1);
  layout.first = layout.slice + layout.stride + 1;
  layout.last = layout.z * layout.slice + layout.y * layout.stride + layout.words;
  layout.size = static_cast<int>(size);
  return layout;
}

unsigned blocks_for(int64_t threads) {
  return static_cast<unsigned>((threads + kThreads - 1) / kThreads);
}

}  // namespace

int64_t thin_3d_workspace(int64_t volumes, const Extent3& extent) {
  return extent.voxels() == 0 ? 0 : volumes * (2 * int64_t{layout_of(extent).size} + 2);
}

void thin_3d_cuda(uint8_t* out, const uint8_t* mask, int64_t volumes, const Extent3& extent, uint64_t* workspace,
                  cuda::Stream stream) {
  if (volumes == 0 || extent.voxels() == 0) return;
  VOX_CHECK(volumes < 65536, "thinning on the GPU: ", volumes, " volumes; at most 65535 are possible at once");
  Layout layout = layout_of(extent);
  const unsigned deep = static_cast<unsigned>(volumes);
  auto* counters = reinterpret_cast<unsigned long long*>(workspace + volumes * 2 * layout.size);
  cuda::check(cudaMemsetAsync(counters, 0, static_cast<size_t>(volumes) * 2 * sizeof(uint64_t), stream), "thinning");
  pack_volumes<<<dim3(blocks_for(int64_t{layout.size} * 32), deep), kThreads, 0, stream>>>(workspace, mask, layout);
  const unsigned most = static_cast<unsigned>(kResident * cuda::multiprocessors()), groups = std::min(deep, most);
  const dim3 grid(std::min(blocks_for(layout.last - layout.first + 1), most / groups), groups);
  void* arguments[] = {&workspace, &counters, &volumes, &layout};
  cuda::check(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(thin_volumes), grid, dim3(kThreads), arguments,
                                          0, stream),
              "thinning");
  unpack_volumes<<<dim3(blocks_for(extent.voxels()), deep), kThreads, 0, stream>>>(out, workspace, layout);
  cuda::check_launch("thinning");
}

}  // namespace vox
