#include "io/folder_write.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <memory>

#include "base/error.h"

namespace vox {
namespace {

fs::path hidden_beside(const fs::path& path, const char* suffix) {
  static std::atomic<int> counter{0};
  return path.parent_path() / concat(".", path.filename().string(), ".", getpid(), ".", counter++, suffix);
}

void rename_or_throw(const fs::path& from, const fs::path& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) throw_system_error("write", to.string(), errno);
}

}  // namespace

FolderWrite::FolderWrite(const fs::path& path, bool (*is_replaceable)(const fs::path&))
    : path_(fs::absolute(path).lexically_normal()) {
  if (!path_.has_filename()) path_ = path_.parent_path();
  const bool there = fs::exists(path_);
  const bool ours =
      there && fs::is_directory(path_) && (fs::is_empty(path_) || (is_replaceable != nullptr && is_replaceable(path_)));
  VOX_CHECK(!there || ours, path.string(),
            ": something else stands there already and is not replaced; remove it or choose another name");
  temporary_ = hidden_beside(path_, ".part");
  make_folders(temporary_);
}

FolderWrite::~FolderWrite() {
  std::error_code ignored;
  if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
}

void FolderWrite::commit() {
  const int handle = open(temporary_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (handle < 0) throw_system_error("write", path_.string(), errno);
  const int state = syncfs(handle);  // one call for all the files in it
  const int reason = errno;
  close(handle);
  if (state != 0) throw_system_error("write", path_.string(), reason);
  fs::path replaced;
  if (fs::exists(path_)) {
    replaced = hidden_beside(path_, ".old");
    rename_or_throw(path_, replaced);
  }
  rename_or_throw(temporary_, path_);
  temporary_.clear();
  std::error_code ignored;
  if (!replaced.empty()) fs::remove_all(replaced, ignored);
}

void write_plainly(const fs::path& path, std::span<const std::byte> bytes) {
  struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "wb"));
  if (!file) throw_system_error("write", path.string(), errno);
  const bool written = bytes.empty() || std::fwrite(bytes.data(), 1, bytes.size(), file.get()) == bytes.size();
  const int reason = errno;
  if (!written || std::fflush(file.get()) != 0) throw_system_error("write", path.string(), written ? errno : reason);
}

}  // namespace vox
