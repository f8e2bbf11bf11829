#ifdef VOX_HAVE_HDF5
#include "io/hdf5_handles.h"

namespace vox::h5 {

std::unique_lock<std::recursive_mutex> lock_library() {
  static std::recursive_mutex mutex;
  std::unique_lock lock(mutex);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);  // by thread: errors are ours to report
  return lock;
}

std::string last_problem() {
  std::string problem = "no reason given";
  const auto keep = [](unsigned, const H5E_error2_t* error, void* text) -> herr_t {
    if (error->desc != nullptr) *static_cast<std::string*>(text) = error->desc;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, +keep, &problem);  // ends with the outermost; the first is the cause
  std::string cause;
  const auto first = [](unsigned number, const H5E_error2_t* error, void* text) -> herr_t {
    if (number == 0 && error->desc != nullptr) *static_cast<std::string*>(text) = error->desc;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, +first, &cause);
  return cause.empty() ? problem : cause;
}

}  // namespace vox::h5
#endif
