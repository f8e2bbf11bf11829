// The header of a NIfTI-1 or NIfTI-2 file as plain values, both ways.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/volume.h"
#include "io/raw_reader.h"

namespace vox {

constexpr int64_t kNifti1Bytes = 348, kNifti2Bytes = 540;

struct NiftiHeader {
  bool swap_bytes = false;
  bool data_in_other_file = false;  // a .hdr with its .img
  int version = 1;
  int datatype = 0;
  std::array<int64_t, 8> dim{};
  std::array<double, 8> pixdim{};
  int64_t vox_offset = 0;
  double scl_slope = 0, scl_inter = 0;
  int xyzt_units = 0, qform_code = 0, sform_code = 0;
  std::array<double, 3> quaternion{}, qoffset{};  // b, c, d; x, y, z
  Affine srow{};
};

// True where `head` begins a NIfTI header; 348 bytes decide.
bool is_nifti(std::span<const std::byte> head);
int64_t nifti_header_bytes(std::span<const std::byte> first_four);  // 0: neither version in either byte order
NiftiHeader parse_nifti_header(std::span<const std::byte> bytes, const std::string& path);

RawLayout nifti_layout(const NiftiHeader& header, const std::string& path);
// Spacing and affine in mm, scale and offset. The affine is that of the sform, else of the qform, else absent.
VolumeInfo nifti_info(const NiftiHeader& header);

// A complete single-file header, up to the first voxel.
std::string nifti_header_for(const VolumeInfo& info);

}  // namespace vox
