#ifdef VOX_HAVE_HDF5
#include "io/hdf5_dataset.h"

#include <algorithm>

#include "base/file.h"
#include "base/text.h"

namespace vox::h5 {
namespace {

constexpr unsigned kMostAxes = 32;

std::optional<ElementType> integer_type(size_t size, bool is_signed) {
  switch (size) {
    case 1:
      return is_signed ? ElementType::kInt8 : ElementType::kUInt8;
    case 2:
      return is_signed ? ElementType::kInt16 : ElementType::kUInt16;
    case 4:
      return is_signed ? ElementType::kInt32 : ElementType::kUInt32;
    case 8:
      return is_signed ? ElementType::kInt64 : ElementType::kUInt64;
    default:
      return std::nullopt;
  }
}

std::optional<ElementType> float_type(size_t size) {
  if (size == 2) return ElementType::kFloat16;
  if (size == 4) return ElementType::kFloat32;
  if (size == 8) return ElementType::kFloat64;
  return std::nullopt;
}

std::optional<ElementType> element_of(const Type& type) {
  const H5T_class_t kind = H5Tget_class(type.get());
  const size_t size = H5Tget_size(type.get());
  if (kind == H5T_FLOAT) return float_type(size);
  if (kind == H5T_INTEGER) return integer_type(size, H5Tget_sign(type.get()) == H5T_SGN_2);
  if (kind == H5T_ENUM && size == 1) return ElementType::kUInt8;  // h5py's bool
  return std::nullopt;
}

std::vector<int64_t> shape_of(hid_t dataset) {
  const Space space(H5Dget_space(dataset));
  hsize_t dims[kMostAxes];
  const int rank = space ? H5Sget_simple_extent_dims(space.get(), dims, nullptr) : -1;
  if (rank < 0) return {};
  return {dims, dims + rank};
}

herr_t collect(hid_t root, const char* name, const ObjectFacts* info, void* names) {
  if (info->type != H5O_TYPE_DATASET) return 0;
  const Dataset dataset(H5Dopen2(root, name, H5P_DEFAULT));
  const Type type(dataset ? H5Dget_type(dataset.get()) : -1);
  if (type && element_of(type) && shape_of(dataset.get()).size() >= 3)
    static_cast<std::vector<std::string>*>(names)->push_back(name);
  return 0;
}

std::optional<Spacing3> read_spacing(hid_t dataset) {
  if (H5Aexists(dataset, kElementSizeKey) <= 0) return std::nullopt;
  const Attribute attribute(H5Aopen(dataset, kElementSizeKey, H5P_DEFAULT));
  const Space space(attribute ? H5Aget_space(attribute.get()) : -1);
  if (!space || H5Sget_simple_extent_npoints(space.get()) != 3) return std::nullopt;
  double um[3] = {0, 0, 0};
  if (H5Aread(attribute.get(), H5T_NATIVE_DOUBLE, um) < 0 || !(um[0] > 0 && um[1] > 0 && um[2] > 0))
    return std::nullopt;
  return Spacing3{um[0] / 1e3, um[1] / 1e3, um[2] / 1e3};
}

template <class Call>
std::string text_by(const Call& call) {  // call(buffer, size) gives the length
  const ssize_t length = call(nullptr, size_t{0});
  std::string text(static_cast<size_t>(std::max<ssize_t>(length, 0)), '\0');
  if (length > 0) call(text.data(), text.size() + 1);
  return text;
}

std::string file_of(hid_t object) {
  return text_by([&](char* text, size_t size) { return H5Fget_name(object, text, size); });
}

std::vector<std::string> files_of(hid_t dataset, hid_t creation) {
  std::vector<std::string> names, files{file_of(dataset)};
  for (int i = 0; i < H5Pget_external_count(creation); ++i) {
    char name[4096] = "";
    H5Pget_external(creation, static_cast<unsigned>(i), sizeof(name) - 1, name, nullptr, nullptr);
    names.push_back(name);
  }
  size_t sources = 0;
  if (H5Pget_layout(creation) == H5D_VIRTUAL) H5Pget_virtual_count(creation, &sources);
  for (size_t i = 0; i < sources; ++i)
    names.push_back(text_by([&](char* text, size_t n) { return H5Pget_virtual_filename(creation, i, text, n); }));
  std::error_code ignored;  // the library takes a source that is not there for one of fill values
  for (const std::string& name : names)
    for (const fs::path& file : {fs::path(name), fs::path(files.front()).parent_path() / name})
      if (fs::is_regular_file(file, ignored)) files.push_back(file.string());
  return files;
}

// Addresses are those of the file itself: no user block before it, no parts in other files, nothing virtual.
bool lies_plainly(const File& file, const Dataset& dataset, hid_t creation) {
  const Properties file_creation(H5Fget_create_plist(file.get()));
  hsize_t user_block = 1;
  return file_creation && H5Pget_userblock(file_creation.get(), &user_block) >= 0 && user_block == 0 &&
         H5Pget_external_count(creation) == 0 && file_of(dataset.get()) == file_of(file.get());
}

}  // namespace

File open_file(const std::string& path) {
  const Properties access(H5Pcreate(H5P_FILE_ACCESS));
#if H5_VERSION_GE(1, 10, 7)
  H5Pset_file_locking(access.get(), false, true);  // reading needs no lock, and shared file systems often refuse one
#endif
  File file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()));
  VOX_CHECK(file, path, ": this HDF5 file cannot be opened (", last_problem(),
            "); was it copied or downloaded completely?");
  return file;
}

std::vector<std::string> volumes_in(const File& file) {
  std::vector<std::string> names;
  visit_objects(file.get(), collect, &names);
  std::sort(names.begin(), names.end(), natural_less);
  return names;
}

hid_t memory_type(DType dtype) {
  static_assert(sizeof(int) == 4);
  switch (dtype) {
    case DType::kUInt8:
      return H5T_NATIVE_UINT8;
    case DType::kInt8:
      return H5T_NATIVE_INT8;
    case DType::kUInt16:
      return H5T_NATIVE_UINT16;
    case DType::kInt16:
      return H5T_NATIVE_INT16;
    case DType::kUInt32:
      return H5T_NATIVE_UINT32;
    case DType::kInt32:
      return H5T_NATIVE_INT32;
    case DType::kFloat32:
      return H5T_NATIVE_FLOAT;
    case DType::kFloat64:
      return H5T_NATIVE_DOUBLE;
    case DType::kBFloat16:
      break;
  }
  throw Error("internal error: a volume of type bfloat16", Fault::kBug);
}

DatasetFacts read_facts(const File& file, const Dataset& dataset, const std::string& name) {
  DatasetFacts facts;
  facts.shape = shape_of(dataset.get());
  const Type type(H5Dget_type(dataset.get()));
  const std::optional<ElementType> element = type ? element_of(type) : std::nullopt;
  VOX_CHECK(element, name, ": the dataset holds no plain numbers (records, text or an odd float); expected a volume");
  facts.type = *element;
  VOX_CHECK(has_its_values(dataset.get()), name, ": its shape needs more bytes than are stored; the file is damaged");
  facts.swap_bytes = size_of(facts.type) > 1 && H5Tget_order(type.get()) == H5T_ORDER_BE;
  facts.spacing = read_spacing(dataset.get());
  const Properties creation(H5Dget_create_plist(dataset.get()));
  VOX_CHECK(creation, name, ": the dataset does not open (", last_problem(), ")");
  facts.files = files_of(dataset.get(), creation.get());
  const DType dtype = dtype_read_as(facts.type);
  facts.fill.assign(static_cast<size_t>(size_of(dtype)), std::byte{0});
  // Asked for only where there is one: on a damaged header the library may crash while it converts it.
  H5D_fill_value_t fill{};
  if (H5Pfill_value_defined(creation.get(), &fill) >= 0 && fill == H5D_FILL_VALUE_USER_DEFINED)
    H5Pget_fill_value(creation.get(), memory_type(dtype), facts.fill.data());
  const H5D_layout_t layout = H5Pget_layout(creation.get());
  const bool plain = lies_plainly(file, dataset, creation.get());
  if (plain && layout == H5D_CONTIGUOUS) {
    const haddr_t offset = H5Dget_offset(dataset.get());
    if (offset != HADDR_UNDEF) facts.offset = static_cast<int64_t>(offset);
  }
  if (layout != H5D_CHUNKED) return facts;
  hsize_t dims[kMostAxes];
  const int rank = H5Pget_chunk(creation.get(), kMostAxes, dims);
  if (rank != static_cast<int>(facts.shape.size())) return facts;
  facts.chunk.assign(dims, dims + rank);
  if (plain) facts.pipeline = read_pipeline(creation.get(), size_of(facts.type));  // else the library unpacks
  return facts;
}

}  // namespace vox::h5
#endif
