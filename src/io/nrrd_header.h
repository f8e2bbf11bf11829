// The text header of an NRRD file.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "base/volume.h"
#include "io/raw_reader.h"

namespace vox::nrrd {

struct Header {
  RawLayout layout;  // offset: bytes to skip once unpacked
  bool gzip = false;
  int64_t line_skip = 0;     // lines of the data file before the data
  bool data_at_end = false;  // byte skip -1: the data are the last bytes of the file
  std::string data_file;     // empty: the data follow the header
  std::optional<Spacing3> spacing;
  std::optional<Affine> affine;  // to right, anterior, superior
};

// `text` ends with the empty line that ends the header.
Header parse_header(std::string_view text, const std::string& path);
std::string header_for(const VolumeInfo& info, bool gzip, const std::string& data_file);

}  // namespace vox::nrrd
