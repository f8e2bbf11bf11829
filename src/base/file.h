// Files: positioned reads that any thread may do at once, and writes that a reader never sees half of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

namespace vox {

namespace fs = std::filesystem;

class InputFile {
 public:
  explicit InputFile(const fs::path& path);
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;

  // Fills `out` from `offset`. Error names the file and both sizes where the file ends before.
  void read(int64_t offset, std::span<std::byte> out) const;
  // As read, but returns how many bytes there were.
  int64_t read_some(int64_t offset, std::span<std::byte> out) const;
  int64_t size() const { return size_; }
  const std::string& path() const { return path_; }
  int descriptor() const { return descriptor_; }  // for mapping; stays this file's

 private:
  std::string path_;
  int descriptor_ = -1;
  int64_t size_ = 0;
};

// Writes to a hidden name beside `path`; commit() syncs and renames. Without commit() nothing is left behind.
class OutputFile {
 public:
  explicit OutputFile(const fs::path& path);  // makes missing folders
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(const std::string& text) { write(std::as_bytes(std::span(text))); }
  void write_at(int64_t offset, std::span<const std::byte> bytes);
  int64_t position() const { return position_; }
  void commit();

 private:
  fs::path path_, temporary_;
  int descriptor_ = -1;
  int64_t position_ = 0;
};

// Sleeps as long as a disk of VOXLOOM_TEST_READ_MBPS (an environment variable of tests) would take; else nothing.
void pretend_slow_disk(int64_t bytes);
// Likewise VOXLOOM_TEST_LOG_MS for a row of a log, on a mount that confirms every one.
void pretend_slow_log();

void write_file(const fs::path& path, const std::string& text);  // whole or not at all
std::string read_file(const fs::path& path);
void make_folders(const fs::path& folder);
bool path_exists(const fs::path& path);  // false also of what can be no path: a word too long, or out of reach

// Held while alive; a second holder in any process gets an Error that says `busy`. The lock goes with its process.
class FileLock {
 public:
  enum class IfHeld { kFail, kWait };
  FileLock(const fs::path& path, const std::string& busy, IfHeld if_held = IfHeld::kFail);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int descriptor_ = -1;
};

}  // namespace vox
