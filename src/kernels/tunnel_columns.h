// What is left of a map's tunnels once the steps of kernels/tunnel_steps.h are done, and their pairs from it.
#pragma once

#include <cstdint>
#include <vector>

namespace vox {

// Rows and columns in order, as entries of kernels/tunnel_steps.h. Edges that join components are no rows.
struct TunnelColumns {
  int64_t places = 0;
  std::vector<uint64_t> rows, columns;
  std::vector<uint32_t> rest;   // three of each row: rows, kNothing where there are fewer or the edge is critical
  std::vector<uint32_t> edges;  // four of each column: rows
  std::vector<uint32_t> cubes;  // two of each column: the last cubes that its sides lead to, 0 for what is outside
};

struct PlacePair {
  uint32_t birth, death;
};
// In the order of deaths, those of the same voxel in the order of the places where they were born.
std::vector<PlacePair> tunnel_pairs_of(const TunnelColumns& left);

}  // namespace vox
