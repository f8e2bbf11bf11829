// The sparse CSV files of OpenKBP: a header `,data`, then `index,value` or (masks) `index,` per line, the index a voxel
// of a 128^3 volume in C order. Four lines are parsed at once; what is written in an unusual way, line by line.
#pragma once

#include <cstdint>
#include <string>

namespace vox {

constexpr int64_t kOpenKbpSide = 128;
constexpr int64_t kOpenKbpVoxels = kOpenKbpSide * kOpenKbpSide * kOpenKbpSide;

// Each writes the listed voxels of kOpenKbpVoxels values and leaves the others as they are, or makes them 0: shortly
// before the voxels around them are written, while they are in the cache. Error names file and line.
enum class Others { kStay, kBecomeZero };
void read_sparse_int16(const std::string& path, int16_t* voxels, Others others);
void read_sparse_float(const std::string& path, float* voxels, Others others);
void read_sparse_mask(const std::string& path, uint16_t* voxels, uint16_t bits, Others others);  // voxel |= bits

}  // namespace vox
