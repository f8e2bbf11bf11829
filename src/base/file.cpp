#include "base/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/error.h"
#include "base/span.h"

namespace vox {

InputFile::InputFile(const fs::path& path) : path_(path.string()) {
  descriptor_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // else a pipe is waited for
  if (descriptor_ < 0) throw_system_error("open", path_, errno);
  struct stat facts {};
  if (fstat(descriptor_, &facts) != 0 || S_ISDIR(facts.st_mode)) {
    const int reason = S_ISDIR(facts.st_mode) ? EISDIR : errno;
    close(descriptor_);
    throw_system_error("read", path_, reason);
  }
  if (!S_ISREG(facts.st_mode)) {
    close(descriptor_);
    throw Error(concat("cannot read ", path_, ": it is a pipe or a device, not a file"));
  }
  size_ = facts.st_size;
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(other.descriptor_), size_(other.size_) {
  other.descriptor_ = -1;
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

void pretend_slow_disk(int64_t bytes) {
  static const double bytes_per_s = [] {
    const char* text = std::getenv("VOXLOOM_TEST_READ_MBPS");
    return text ? std::atof(text) * 1e6 : 0.0;
  }();
  if (bytes_per_s > 0)
    std::this_thread::sleep_for(std::chrono::duration<double>(static_cast<double>(bytes) / bytes_per_s));
}

void pretend_slow_log() {
  static const double milliseconds = [] {
    const char* text = std::getenv("VOXLOOM_TEST_LOG_MS");
    return text ? std::atof(text) : 0.0;
  }();
  if (milliseconds > 0) std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(milliseconds));
}

int64_t InputFile::read_some(int64_t offset, std::span<std::byte> out) const {
  const Span span("storage");
  int64_t done = 0;
  while (done < static_cast<int64_t>(out.size())) {
    const ssize_t got = pread(descriptor_, out.data() + done, out.size() - static_cast<size_t>(done), offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_system_error("read", path_, errno);
    if (got == 0) break;
    done += got;
  }
  pretend_slow_disk(done);
  return done;
}

void InputFile::read(int64_t offset, std::span<std::byte> out) const {
  const int64_t got = read_some(offset, out);
  VOX_CHECK(got == static_cast<int64_t>(out.size()), path_, ": the file ends too early: ", out.size(),
            " bytes were expected at offset ", offset, ", but the file has ", size_,
            " bytes in all; was it copied or downloaded completely?");
}

OutputFile::OutputFile(const fs::path& path) : path_(path) {
  if (path.has_parent_path()) make_folders(path.parent_path());
  static std::atomic<int> counter{0};
  temporary_ = path.parent_path() / concat(".", path.filename().string(), ".", getpid(), ".", counter++, ".part");
  descriptor_ = open(temporary_.c_str(), O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw_system_error("write", path_.string(), errno);
}

OutputFile::~OutputFile() {
  if (descriptor_ < 0) return;
  close(descriptor_);
  unlink(temporary_.c_str());
}

void OutputFile::write(std::span<const std::byte> bytes) {
  write_at(position_, bytes);
  position_ += static_cast<int64_t>(bytes.size());
}

void OutputFile::write_at(int64_t offset, std::span<const std::byte> bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t put =
        pwrite(descriptor_, bytes.data() + done, bytes.size() - done, offset + static_cast<int64_t>(done));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) throw_system_error("write", path_.string(), errno);
    done += static_cast<size_t>(put);
  }
}

void OutputFile::commit() {
  if (fsync(descriptor_) != 0) throw_system_error("write", path_.string(), errno);
  close(descriptor_);
  descriptor_ = -1;
  if (rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int reason = errno;
    unlink(temporary_.c_str());
    throw_system_error("write", path_.string(), reason);
  }
  const int folder = open(path_.has_parent_path() ? path_.parent_path().c_str() : ".", O_RDONLY | O_DIRECTORY);
  if (folder < 0) return;
  fsync(folder);  // the name itself; some file systems refuse, and the data is safe already
  close(folder);
}

void write_file(const fs::path& path, const std::string& text) {
  OutputFile file(path);
  file.write(text);
  file.commit();
}

std::string read_file(const fs::path& path) {
  const InputFile file(path);
  std::string text(static_cast<size_t>(file.size()), '\0');
  text.resize(static_cast<size_t>(file.read_some(0, std::as_writable_bytes(std::span(text)))));
  return text;
}

bool path_exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

void make_folders(const fs::path& folder) {
  std::error_code problem;
  fs::create_directories(folder, problem);
  if (problem) throw_system_error("make the folder", folder.string(), problem.value());
}

FileLock::FileLock(const fs::path& path, const std::string& busy, IfHeld if_held) {
  if (path.has_parent_path()) make_folders(path.parent_path());
  descriptor_ = open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw_system_error("lock", path.string(), errno);
  const int mode = LOCK_EX | (if_held == IfHeld::kFail ? LOCK_NB : 0);
  while (flock(descriptor_, mode) != 0) {
    if (errno == EINTR) continue;
    const int reason = errno;
    close(descriptor_);
    if (reason == EWOULDBLOCK) throw Error(busy);
    throw_system_error("lock", path.string(), reason);
  }
}

FileLock::~FileLock() {
  close(descriptor_);
}

}  // namespace vox
