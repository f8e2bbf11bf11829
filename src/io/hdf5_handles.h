// HDF5's C handles, owned. Included only where the library was there at build time.
#pragma once

#include <hdf5.h>

#include <mutex>
#include <string>
#include <utility>

#include "base/error.h"

namespace vox::h5 {

// The library is not reentrant, or has one lock for everything: this one is held around every call.
// Recursive, because a reader that fails while it is made is destroyed by the lock's holder, and closes its handles.
std::unique_lock<std::recursive_mutex> lock_library();

template <herr_t (*Close)(hid_t)>
class Handle {
 public:
  Handle() = default;
  explicit Handle(hid_t id) : id_(id) {}
  ~Handle() {
    if (id_ >= 0) Close(id_);
  }
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    return *this;
  }
  hid_t get() const { return id_; }
  explicit operator bool() const { return id_ >= 0; }

 private:
  hid_t id_ = -1;
};
using File = Handle<H5Fclose>;
using Dataset = Handle<H5Dclose>;
using Object = Handle<H5Oclose>;
using Space = Handle<H5Sclose>;
using Type = Handle<H5Tclose>;
using Properties = Handle<H5Pclose>;
using Attribute = Handle<H5Aclose>;

std::string last_problem();  // what the library says of the call that failed

// What the library says of an object. Only its address and kind are asked for: for more the library follows all that
// the object's header points to, and crashes where that is damaged.
#if H5_VERSION_GE(1, 12, 0)
using ObjectFacts = H5O_info1_t;
#else
using ObjectFacts = H5O_info_t;
#endif
herr_t object_facts(hid_t object, ObjectFacts* facts);
using Visitor = herr_t (*)(hid_t root, const char* name, const ObjectFacts* facts, void* data);
herr_t visit_objects(hid_t root, Visitor visitor, void* data);

// False where values that stand in the header itself are fewer than the shape says: the library would copy what lies
// behind them.
bool has_its_values(hid_t dataset);

}  // namespace vox::h5
