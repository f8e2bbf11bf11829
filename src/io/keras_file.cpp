// Keras's weights: HDF5 files, or .keras zip files with one inside. Which array is which weight is for the network to
// say; here they are named by their places.
#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "io/array_file.h"
#include "io/zip_archive.h"

#ifdef VOX_HAVE_HDF5
#include "io/hdf5_dataset.h"
#endif

namespace vox {
#ifdef VOX_HAVE_HDF5
namespace {

constexpr unsigned kMostAxes = 32;

// A file inside another is opened from memory.
h5::File open_image(std::vector<std::byte> image, const std::string& path) {
  const h5::Properties access(H5Pcreate(H5P_FILE_ACCESS));
  constexpr size_t kGrowth = size_t{1} << 20;
  H5Pset_fapl_core(access.get(), kGrowth, false);
  H5Pset_file_image(access.get(), image.data(), image.size());  // copies
  h5::File file(H5Fopen("image.h5", H5F_ACC_RDONLY, access.get()));
  VOX_CHECK(file, path, ": the HDF5 file in it cannot be opened (", h5::last_problem(), "); the file is damaged");
  return file;
}

h5::File open_weights(const std::string& path) {
  const InputFile file(path);
  std::byte head[4]{};
  if (file.read_some(0, head) < 4 || !is_zip(head)) return h5::open_file(path);
  for (const ZipMember& member : read_zip_directory(file)) {
    if (ends_with(member.name, "model.weights.h5")) {
      return open_image(read_zip_member(file, member, 64 * file.size()), path);
    }
  }
  throw Error(concat(path, " is a zip file, but none of Keras: it holds no model.weights.h5"));
}

herr_t collect(hid_t, const char* name, const h5::ObjectFacts* info, void* names) {
  if (info->type == H5O_TYPE_DATASET) static_cast<std::vector<std::string>*>(names)->push_back(name);
  return 0;
}

bool is_weight(const std::string& name) {
  return name.rfind("optimizer", 0) != 0 && name.find("/optimizer/") == std::string::npos;
}

class KerasFile : public ArrayFile {
 public:
  explicit KerasFile(const std::string& path) : path_(path) {
    const auto lock = h5::lock_library();
    file_ = open_weights(path);
    std::vector<std::string> names;
    VOX_CHECK(h5::visit_objects(file_.get(), collect, &names) >= 0, path, ": the HDF5 file cannot be listed (",
              h5::last_problem(), "); it is damaged");
    std::sort(names.begin(), names.end(), natural_less);
    for (const std::string& name : names) {
      if (is_weight(name)) add(name);
    }
    VOX_CHECK(!entries_.empty(), path, " holds no weights of Keras");
  }
  ~KerasFile() override {
    const auto lock = h5::lock_library();
    file_ = h5::File();
  }

  const std::string& path() const override { return path_; }
  const std::vector<ArrayEntry>& arrays() const override { return entries_; }

  void read(size_t index, std::span<std::byte> out) const override {
    const auto lock = h5::lock_library();
    const ArrayEntry& entry = entries_[index];
    VOX_ASSERT(static_cast<int64_t>(out.size()) == entry.bytes);
    const h5::Dataset dataset(H5Dopen2(file_.get(), entry.name.c_str(), H5P_DEFAULT));
    const hid_t type = entry.dtype == "F64" ? H5T_NATIVE_DOUBLE : H5T_NATIVE_FLOAT;
    const bool done = dataset && H5Dread(dataset.get(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, out.data()) >= 0;
    VOX_CHECK(done, path_, ": the array ", printable(entry.name), " cannot be read (", h5::last_problem(),
              "); the file is damaged");
  }

 private:
  void add(const std::string& name) {
    const h5::Dataset dataset(H5Dopen2(file_.get(), name.c_str(), H5P_DEFAULT));
    const h5::Type type(dataset ? H5Dget_type(dataset.get()) : -1);
    const h5::Space space(dataset ? H5Dget_space(dataset.get()) : -1);
    const h5::Properties creation(dataset ? H5Dget_create_plist(dataset.get()) : -1);
    hsize_t sizes[kMostAxes];
    const int rank = space && H5Sget_simple_extent_ndims(space.get()) <= static_cast<int>(kMostAxes)
                         ? H5Sget_simple_extent_dims(space.get(), sizes, nullptr)
                         : -1;
    VOX_CHECK(type && creation && rank >= 0, path_, ": the array ", printable(name), " cannot be read (",
              h5::last_problem(), "); the file is damaged");
    // Neither texts nor counters are weights, and no weights lie in other files.
    const bool lies_here = H5Pget_external_count(creation.get()) == 0 && H5Pget_layout(creation.get()) != H5D_VIRTUAL;
    if (H5Tget_class(type.get()) != H5T_FLOAT || !lies_here) return;
    constexpr size_t kWidestFloat = 16;
    VOX_CHECK(H5Tget_size(type.get()) <= kWidestFloat, path_, ": the array ", printable(name), " has numbers of ",
              H5Tget_size(type.get()), " bytes; the file is damaged");
    VOX_CHECK(h5::has_its_values(dataset.get()), path_, ": the shape of the array ", printable(name),
              " needs more bytes than are stored; the file is damaged");
    ArrayEntry entry{.name = name, .dtype = H5Tget_size(type.get()) == 8 ? "F64" : "F32", .shape = {}};
    entry.bytes = entry.dtype == "F64" ? 8 : 4;
    for (int axis = 0; axis < rank; ++axis) {
      entry.shape.push_back(static_cast<int64_t>(sizes[axis]));
      VOX_CHECK(entry.shape.back() >= 0 && !__builtin_mul_overflow(entry.bytes, entry.shape.back(), &entry.bytes),
                path_, ": the array ", printable(name), " has an impossible shape; the file is damaged");
    }
    total_ += static_cast<double>(entry.bytes);
    const double most = 1024.0 * static_cast<double>(fs::file_size(path_)) + (1 << 26);
    VOX_CHECK(total_ <= most, path_, ": its arrays would take ", total_, " bytes; the file is damaged");
    entries_.push_back(std::move(entry));
  }

  const std::string path_;
  h5::File file_;
  std::vector<ArrayEntry> entries_;
  double total_ = 0;
};

}  // namespace

std::unique_ptr<ArrayFile> open_keras_file(const fs::path& path) {
  return std::make_unique<KerasFile>(path.string());
}

#else

std::unique_ptr<ArrayFile> open_keras_file(const fs::path& path) {
  throw Error(concat(path.string(),
                     ": Keras's weights need the HDF5 library, which this build does not have; install libhdf5-dev "
                     "and build again"));
}

#endif
}  // namespace vox
