// Slices of input, label and prediction that a run keeps as small PNG files, for the report and for TensorBoard.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "report/png.h"

namespace vox {

class RunFolder;

struct SliceStrip {
  int64_t epoch = 0;
  std::string case_id;
  int64_t height = 0, width = 0;
  std::vector<uint8_t> input;       // gray, already stretched to 0..255
  std::vector<uint8_t> label;       // 0 background, n class n, 255 ignored; empty: no label
  std::vector<uint8_t> prediction;  // as label; empty: none
};

// Writes images/image-<epoch>-<case>-{input,label,prediction}.png; label and prediction are colours with
// transparency, to be laid over the input.
void save_slice_strip(const RunFolder& run, const SliceStrip& strip);
void drop_slices_after(const RunFolder& run, int64_t epoch);  // on resume

// Input, input with label, input with prediction side by side, in RGB: what TensorBoard shows.
Image side_by_side(const SliceStrip& strip);

struct SliceFiles {
  int64_t epoch = 0;
  std::string case_id;
  std::filesystem::path input, label, prediction;  // empty where there is none
};
std::vector<SliceFiles> find_slices(const RunFolder& run);  // by epoch, then case

}  // namespace vox
