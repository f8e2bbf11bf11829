// A folder that a reader never sees half of: filled under a hidden name beside `path`, renamed by commit().
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "base/file.h"

namespace vox {

class FolderWrite {
 public:
  // `is_replaceable` says whether a folder that stands at `path` is one of the kind that is written here; any other
  // that is not empty is an Error, so that nobody's data goes for a mistyped name.
  explicit FolderWrite(const fs::path& path, bool (*is_replaceable)(const fs::path&) = nullptr);
  ~FolderWrite();  // without commit() nothing is left behind
  FolderWrite(const FolderWrite&) = delete;
  FolderWrite& operator=(const FolderWrite&) = delete;

  const fs::path& temporary() const { return temporary_; }
  void commit();

 private:
  fs::path path_, temporary_;
};

// A file inside a folder that is not committed yet: no hidden name, no sync of its own.
void write_plainly(const fs::path& path, std::span<const std::byte> bytes);

}  // namespace vox
