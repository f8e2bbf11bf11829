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

#if H5_VERSION_GE(1, 10, 3)
herr_t object_facts(hid_t object, ObjectFacts* facts) {
  return H5Oget_info2(object, facts, H5O_INFO_BASIC);
}
herr_t visit_objects(hid_t root, Visitor visitor, void* data) {
  return H5Ovisit2(root, H5_INDEX_NAME, H5_ITER_NATIVE, visitor, data, H5O_INFO_BASIC);
}
#else
herr_t object_facts(hid_t object, ObjectFacts* facts) {
  return H5Oget_info(object, facts);
}
herr_t visit_objects(hid_t root, Visitor visitor, void* data) {
  return H5Ovisit(root, H5_INDEX_NAME, H5_ITER_NATIVE, visitor, data);
}
#endif

bool has_its_values(hid_t dataset) {
  const Properties creation(H5Dget_create_plist(dataset));
  if (!creation || H5Pget_layout(creation.get()) != H5D_COMPACT) return true;
  const Type type(H5Dget_type(dataset));
  const Space space(H5Dget_space(dataset));
  hsize_t sizes[H5S_MAX_RANK];
  const int rank = space ? H5Sget_simple_extent_dims(space.get(), sizes, nullptr) : -1;
  hsize_t bytes = type ? H5Tget_size(type.get()) : 0;
  for (int axis = 0; axis < rank; ++axis)
    if (__builtin_mul_overflow(bytes, sizes[axis], &bytes)) return false;
  return rank >= 0 && bytes <= H5Dget_storage_size(dataset);
}

}  // namespace vox::h5
#endif
