// The header of a NumPy array file, shared by .npy files and the members of .npz archives.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/volume.h"
#include "io/raw_reader.h"

namespace vox {

struct NpyHeader {
  int64_t bytes = 0;  // data begins here
  std::string descr;  // "<f4"
  bool fortran_order = false;
  std::vector<int64_t> shape;
};

constexpr int64_t kNpyPrefixBytes = 12;  // enough to know how long the header is

bool is_npy(std::span<const std::byte> head);
int64_t npy_header_bytes(std::span<const std::byte> prefix, const std::string& name);
NpyHeader parse_npy_header(std::span<const std::byte> header, const std::string& name);

// Where the voxels lie: 3-D arrays are z,y,x and 4-D ones channel,z,y,x; others are refused.
RawLayout npy_layout(const NpyHeader& header, const std::string& name);

std::string npy_header_for(const VolumeInfo& info);  // version 1.0; data follows

}  // namespace vox
