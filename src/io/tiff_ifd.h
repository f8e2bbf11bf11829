// The directories of a TIFF file (TIFF 6.0, BigTIFF; both byte orders): where each page's strips or tiles lie and how
// they are packed. Nothing here trusts the file: what it returns lies inside the file and can be decoded into memory
// that the file's size makes plausible.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/file.h"
#include "io/codec.h"

namespace vox {

namespace tiff {

struct Piece {  // a strip or a tile, as it lies in the file
  int64_t offset = 0, bytes = 0;
};

struct Page {
  int64_t width = 0, height = 0;
  DType dtype = DType::kUInt8;
  Codec codec = Codec::kNone;
  int predictor = 1;  // 1 none, 2 horizontal, 3 floating point
  bool tiled = false;
  int64_t piece_width = 0, piece_height = 0;  // tiles at the border are padded to this, strips are cut
  std::vector<Piece> pieces;                  // row by row

  int64_t pieces_across() const { return (width + piece_width - 1) / piece_width; }
  int64_t pieces_down() const { return (height + piece_height - 1) / piece_height; }
  int64_t row_bytes() const { return width * size_of(dtype); }
  int64_t piece_row_bytes() const { return piece_width * size_of(dtype); }
  int64_t piece_rows(int64_t piece) const {  // that are stored
    return tiled ? piece_height : std::min(piece_height, height - piece * piece_height);
  }
  const char* piece_name() const { return tiled ? "tile" : "strip"; }
};

struct Directory {
  bool swapped = false;                       // the file's byte order is not this machine's
  std::vector<Page> pages;                    // at least one, all of one shape and type; reduced copies are left out
  std::string description;                    // of the first page
  double x_resolution = 0, y_resolution = 0;  // pixels per unit; 0: not said
  int resolution_unit = 1;                    // 1 none, 2 inch, 3 centimetre
};

Directory read_directory(const InputFile& file);

// Makes `count` pages of the one there is, for stacks that ImageJ and tifffile write as one directory and plain data.
void repeat_page(Directory& directory, int64_t count, const InputFile& file);

}  // namespace tiff
}  // namespace vox
