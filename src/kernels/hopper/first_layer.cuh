// What the forward pass and the weight gradient of a one-channel input share: tiles of 8 x 8 x 32 voxels with a halo.
//
// A tile is kept in shared memory twice, the second copy shifted by one element: any two neighbours along x are then
// one aligned word of one of the copies, whatever the shift. The row pitch of 20 words and the distance of 2020 words
// between the copies keep the forward pass free of bank conflicts. The next tile is loaded into registers before the
// current one is used, and stored into the other buffer after.
#pragma once

#include "kernels/hopper/tiling.cuh"

namespace vox::cuda {

constexpr int kTileX = 32, kTileY = 8, kTileZ = 8;
constexpr int kRowWords = 20, kPlaneWords = (kTileY + 2) * kRowWords;  // words of 32 bits
constexpr int kSecondCopy = 2020, kTileWords = kSecondCopy + (kTileZ + 2) * kPlaneWords;
constexpr int kTileWarps = kTileY;  // a row each
constexpr int kBlocksPerMultiprocessor = 2;

inline Tiling first_layer_tiling(const Conv3d& conv) {
  Tiling t = tiling_of(conv, kTileY, kTileX);
  t.planes = kTileZ;
  t.chunks = (t.z + kTileZ - 1) / kTileZ;
  return t;
}
inline int first_layer_blocks(const Tiling& tiling) {
  return std::min(kBlocksPerMultiprocessor * multiprocessors(), tiling.pieces());
}

// A thread's part of a tile, 10 x 10 rows of 35 elements (the last one meets only weights of zero).
class TileLoad {
 public:
  __device__ __forceinline__ void load(const uint16_t* __restrict__ x, const Tiling& t, int index, int warp, int lane) {
    const Piece piece = t.piece(index);
    const auto element = [&](int z, int y, int e) -> uint16_t {
      const int at_z = piece.begin_z - 1 + z, at_y = piece.y - 1 + y, at_x = piece.x - 1 + e;
      const bool inside = static_cast<unsigned>(at_z) < static_cast<unsigned>(t.z) &&
                          static_cast<unsigned>(at_y) < static_cast<unsigned>(t.y) &&
                          static_cast<unsigned>(at_x) < static_cast<unsigned>(t.x);
      return inside ? __ldg(x + ((static_cast<int64_t>(piece.n) * t.z + at_z) * t.y + at_y) * t.x + at_x) : uint16_t{0};
    };
    each(warp, lane, [&](uint16_t& value, int z, int y, int e) { value = element(z, y, e); });
  }
  __device__ __forceinline__ void store(uint32_t* tile, int warp, int lane) {
    uint16_t* halves = reinterpret_cast<uint16_t*>(tile);
    each(warp, lane, [&](uint16_t value, int z, int y, int e) {
      const int at = (z * kPlaneWords + y * kRowWords) * 2 + e;
      halves[at] = value;
      if (e > 0) halves[2 * kSecondCopy + at - 1] = value;
    });
  }

 private:
  template <class F>
  __device__ __forceinline__ void each(int warp, int lane, F&& f) {
#pragma unroll
    for (int z = 0; z < 10; ++z) f(rows_[z], z, warp, lane);  // the first 32 of 8 rows a plane
#pragma unroll
    for (int k = 0; k < 3; ++k) {  // of the other two
      const int row = warp + kTileWarps * k;
      if (row < 20) f(more_rows_[k], row / 2, 8 + row % 2, lane);
    }
#pragma unroll
    for (int k = 0; k < 2; ++k) {  // the last three of all rows
      const int e = warp * 32 + lane + 32 * kTileWarps * k;
      if (e < 300) f(ends_[k], e / 30, e % 30 / 3, 32 + e % 3);
    }
  }
  uint16_t rows_[10], more_rows_[3], ends_[2];
};

// d[16 x 8] += a[16 x 16] * b[16 x 8]
__device__ __forceinline__ void multiply_add(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

}  // namespace vox::cuda
