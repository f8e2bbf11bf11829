// One patient of OpenKBP (a folder pt_N of sparse CSV files) in the compact form that fits a whole training set into
// memory: 16 MiB, where the channels as float64 are 208 MiB.
#pragma once

#include <array>
#include <string>

#include "base/volume.h"

namespace vox {

// In the order of the network's input channels 1 to 10 (channel 0 is the CT), and of the bits of `bits`.
inline constexpr std::array<const char*, 10> kOpenKbpStructures = {
    "Brainstem", "SpinalCord", "RightParotid", "LeftParotid", "Esophagus",
    "Larynx",    "Mandible",   "PTV56",        "PTV63",       "PTV70"};
inline constexpr int kOpenKbpDoseMaskBit = 10;  // of possible_dose_mask

struct OpenKbpPatient {
  Buffer ct;    // int16, 128^3; grey value, 0 outside the body
  Buffer bits;  // uint16, 128^3; bit s: structure s, bit 10: voxels that may receive dose
  Buffer dose;  // float32, 128^3; Gy
  Spacing3 spacing;
};

OpenKbpPatient allocate_openkbp();
// Into the memory of `patient`, which another one may have used before. A structure without a file is empty.
void read_openkbp(const std::string& folder, OpenKbpPatient* patient);
// As the challenge writes them; an empty structure gets no file. Whole or not at all.
void write_openkbp(const std::string& folder, const OpenKbpPatient& patient);

}  // namespace vox
