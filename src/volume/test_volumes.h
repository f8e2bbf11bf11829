// Shared by the tests of this folder: a folder that goes away, and volumes of known voxels.
#pragma once

#include <unistd.h>

#include <functional>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/random.h"
#include "base/volume.h"
#include "config/options.h"
#include "io/format.h"

namespace vox {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    static int counter = 0;
    path_ = fs::temp_directory_path() / concat("vox_volume_test_", getpid(), "_", counter++);
    make_folders(path_);
  }
  ~TemporaryFolder() { fs::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

template <class T>
Volume make_volume(const Extent3& extent, const std::function<double(int64_t)>& value) {
  VolumeInfo info;
  info.dtype = dtype_of<T>();
  info.extent = extent;
  Volume volume = allocate_volume(info);
  for (int64_t i = 0; i < extent.voxels(); ++i) volume.data.as<T>()[i] = static_cast<T>(value(i));
  return volume;
}

template <class T>
Volume noise_volume(const Extent3& extent, uint64_t seed, double low, double high) {
  Random random(seed, 0, 7);
  return make_volume<T>(extent, [&](int64_t) { return random.uniform(low, high); });
}

inline double value_at(const VolumeView& view, int64_t z, int64_t y, int64_t x) {
  const int64_t at =
      (z - view.box.begin.z) * view.stride_z + (y - view.box.begin.y) * view.stride_y + x - view.box.begin.x;
  return with_type(view.dtype, [&](auto tag) {
    return static_cast<double>(reinterpret_cast<const decltype(tag)*>(view.data)[at]) * view.scale + view.offset;
  });
}

// The message of the Error that `call` throws; "" where it throws none.
inline std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace vox
