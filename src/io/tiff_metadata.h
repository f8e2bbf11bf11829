// What ImageJ, tifffile and OME say of a stack in its description, and the same written by us.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/volume.h"
#include "io/tiff_ifd.h"

namespace vox::tiff {

struct StackFacts {
  int64_t images = 0;  // slices times channels; 0: not said
  int64_t channels = 1;
  bool channel_by_channel = false;  // all slices of the first channel come first; else all channels of the first slice
  bool one_directory = false;       // all images lie behind one another from the first page's data on
  bool time_series = false;         // frames as well as slices or channels
  std::optional<Spacing3> spacing;
};
StackFacts stack_facts(const Directory& directory);

// ImageJ's form where there are spacing or channels to tell (tifffile reads it too), else tifffile's own.
std::string describe(const VolumeInfo& info);

struct Rational {
  uint32_t numerator = 1, denominator = 1;
};
Rational nearest_rational(double value);  // positive

}  // namespace vox::tiff
