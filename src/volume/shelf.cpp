#include "volume/shelf.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"

namespace vox {
namespace {

// What any later write to the file changes, also one that puts its size and date back.
std::string identity_of(const fs::path& file) {
  struct stat facts {};
  if (stat(file.c_str(), &facts) != 0) return "";
  return concat(facts.st_ino, " ", facts.st_size, " ", facts.st_ctim.tv_sec, ".", facts.st_ctim.tv_nsec);
}

// The identity that a chunk file had when it was written. While it still has it, its checksums need no second look,
// which would read every chunk once more after each start.
fs::path seal_of(fs::path file) {
  return file.replace_extension(".sealed");
}

void seal(const fs::path& file) {
  std::ofstream(seal_of(file)) << identity_of(file);
}

using Date = fs::file_time_type;

Date used_last(const fs::path& file) {
  const auto date_of = [](const fs::path& path) {
    std::error_code absent;
    const Date date = fs::last_write_time(path, absent);
    return absent ? Date::min() : date;
  };
  return std::max(date_of(file), date_of(seal_of(file)));
}

bool is_ours(const fs::path& file) {
  const std::string stem = file.stem(), kind = file.extension();
  return stem.size() == ContentHash().hex().size() && stem.find_first_not_of("0123456789abcdef") == std::string::npos &&
         (kind == ".chunks" || kind == ".facts" || kind == ".sealed");
}

ChunkFile::Trust trust_in(const fs::path& file) {
  std::ifstream text(seal_of(file));
  const std::string sealed{std::istreambuf_iterator<char>(text), {}};
  return !sealed.empty() && sealed == identity_of(file) ? ChunkFile::Trust::kAsWritten : ChunkFile::Trust::kCheck;
}

}  // namespace

int64_t most_open_files() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 256;
  constexpr rlim_t kWanted = 16384;
  if (limit.rlim_cur < kWanted) {
    limit.rlim_cur = std::min(limit.rlim_max, kWanted);
    setrlimit(RLIMIT_NOFILE, &limit);
    getrlimit(RLIMIT_NOFILE, &limit);
  }
  return static_cast<int64_t>(std::min(limit.rlim_cur, kWanted)) / 2;
}

fs::path cache_folder(const std::string& cache_dir) {
  if (!cache_dir.empty()) return cache_dir;
  if (const char* folder = std::getenv("XDG_CACHE_HOME"); folder && *folder) return fs::path(folder) / "voxloom";
  if (const char* home = std::getenv("HOME"); home && *home) return fs::path(home) / ".cache" / "voxloom";
  std::error_code problem;
  const fs::path folder = fs::temp_directory_path(problem);
  VOX_CHECK(!problem, "there is no folder for chunked copies: neither HOME nor TMPDIR is one; set data.cache_dir");
  return folder / "voxloom-cache";
}

void mark_used(const fs::path& file) {
  std::error_code ignored;  // absent, or in a folder that cannot be written, from which nothing is removed either
  fs::last_write_time(file, Date::clock::now(), ignored);
}

void remove_unused(const fs::path& folder, double days) {
  if (days == 0) return;
  const Date oldest = Date::clock::now() - std::chrono::seconds(static_cast<int64_t>(days * 86400));
  std::error_code ignored;  // another process may be removing the same files
  std::vector<fs::path> unused;
  for (fs::directory_iterator entry(folder, ignored), end; !ignored && entry != end; entry.increment(ignored))
    if (is_ours(entry->path()) && used_last(entry->path()) < oldest) unused.push_back(entry->path());
  for (const fs::path& file : unused) fs::remove(file, ignored);
}

void require_free_space(const fs::path& folder, int64_t bytes) {
  if (bytes == 0) return;
  make_folders(folder);
  std::error_code problem;
  const fs::space_info space = fs::space(folder, problem);
  if (problem || static_cast<int64_t>(space.available) >= bytes) return;
  throw Error(concat("the dataset is larger than data.cache_gb, and its chunked copy needs up to ", human_bytes(bytes),
                     " in ", folder.string(), ", where ", human_bytes(static_cast<int64_t>(space.available)),
                     " are free; set data.cache_dir to a folder on another disk, or raise data.cache_gb"),
              Fault::kMachine);
}

ChunkShelf::ChunkShelf(fs::path folder, Loader& loader, int64_t most_open)
    : folder_(std::move(folder)), loader_(loader), files_(most_open) {}

fs::path ChunkShelf::file_of(const Unit& unit) const {
  return folder_ / (ContentHash().add(unit.key).hex() + ".chunks");
}

fs::path ChunkShelf::facts_of(uint64_t key) const {
  return folder_ / (ContentHash().add(key).hex() + ".facts");
}

// Not the chunk file's own date: it is sealed with it.
void ChunkShelf::mark_used(const Unit& unit) const {
  vox::mark_used(seal_of(file_of(unit)));
}

bool ChunkShelf::holds(const Unit& unit) {
  std::error_code ignored;  // a folder that may not be looked into holds nothing
  if (!fs::exists(file_of(unit), ignored)) return false;
  try {
    open(unit);
    return true;
  } catch (const Error&) {  // whatever is wrong with it, it is made again
    discard(unit);
    return false;
  }
}

std::shared_ptr<const ChunkFile> ChunkShelf::open(const Unit& unit) {
  const fs::path file = file_of(unit);
  return files_.get(unit.key, [&] { return std::make_shared<const ChunkFile>(file, unit.key, trust_in(file)); });
}

void ChunkShelf::discard(const Unit& unit) {
  files_.erase(unit.key);
  std::error_code ignored;  // another process may have removed it
  fs::remove(file_of(unit), ignored);
  fs::remove(seal_of(file_of(unit)), ignored);
}

void ChunkShelf::build(const Unit& unit, ThreadPool* pool, const Loader::Slab& also) {
  const fs::path lock_file = folder_ / (ContentHash().add(unit.key).hex() + ".lock");
  {
    const FileLock lock(lock_file, "", FileLock::IfHeld::kWait);
    const bool made_meanwhile = holds(unit);
    if (made_meanwhile && !also) return;
    std::optional<ChunkWriter> writer;
    const int64_t depth = chunk_shape(unit.stored.extent, unit.stored.dtype).z;
    loader_.each_slab(unit, depth, pool,
                      [&](int64_t z_begin, int64_t z_end, const VolumeInfo& info, const std::byte* voxels) {
                        if (!made_meanwhile && !writer) writer.emplace(file_of(unit), info, unit.key);
                        if (writer) writer->write_slab(z_begin, z_end, voxels);
                        if (also) also(z_begin, z_end, info, voxels);
                      });
    if (writer) {
      writer->commit();
      seal(file_of(unit));
    }
  }
  std::error_code ignored;
  fs::remove(lock_file, ignored);
}

void ChunkShelf::write(const Unit& unit, const Volume& volume) {
  ChunkWriter writer(file_of(unit), volume.info, unit.key);
  writer.write_slab(0, volume.info.extent.z, volume.data.data());
  writer.commit();
  seal(file_of(unit));
}

}  // namespace vox
