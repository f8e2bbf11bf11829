#include "io/build_libraries.h"

namespace vox {
namespace {

#ifdef VOX_HAVE_HDF5
constexpr bool kHdf5 = true;
#else
constexpr bool kHdf5 = false;
#endif
#ifdef VOX_HAVE_ZSTD
constexpr bool kZstd = true;
#else
constexpr bool kZstd = false;
#endif
#ifdef VOX_HAVE_LZ4
constexpr bool kLz4 = true;
#else
constexpr bool kLz4 = false;
#endif
#ifdef VOX_HAVE_BLOSC
constexpr bool kBlosc = true;
#else
constexpr bool kBlosc = false;
#endif
#ifdef VOX_HAVE_LIBDEFLATE
constexpr bool kLibdeflate = true;
#else
constexpr bool kLibdeflate = false;
#endif

}  // namespace

std::vector<BuildLibrary> build_libraries() {
  return {
      {"hdf5", kHdf5, "HDF5 volumes and Keras weights cannot be read"},
      {"zstd", kZstd, "ZSTD inside TIFF and Zarr cannot be read"},
      {"lz4", kLz4, "LZ4 inside Zarr cannot be read, and chunked copies are larger"},
      {"blosc", kBlosc, "blosclz inside Zarr cannot be read (Blosc's other codecs can)"},
      {"libdeflate", kLibdeflate, "Deflate is read by zlib, at half the speed"},
  };
}

}  // namespace vox
