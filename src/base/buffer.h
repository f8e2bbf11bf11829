// Owned, 64-byte aligned, uninitialised bytes. Large buffers come straight from the system and go back to it, so that
// freeing a volume lowers the resident memory that data.cache_gb promises.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace vox {

struct ReleaseBytes {
  int64_t mapped = 0;  // bytes mapped from the system; 0: from aligned new
  void operator()(std::byte* data) const;
};

class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t bytes);

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  int64_t size() const { return size_; }
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(data_.get());
  }
  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_.get());
  }

 private:
  std::unique_ptr<std::byte, ReleaseBytes> data_;
  int64_t size_ = 0;
};

}  // namespace vox
