#include "infer/part_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "base/error.h"
#include "base/start_thread.h"
#include "io/volume_name.h"

namespace vox {
namespace {

// Beside the file, also of a dataset within it.
fs::path hidden(const fs::path& output, const std::string& ending) {
  const VolumeName name = name_to_write(output.string());
  std::string dataset = name.dataset.empty() ? "" : ":" + name.dataset;
  std::replace(dataset.begin(), dataset.end(), '/', '_');
  return fs::path(name.path).parent_path() / ("." + fs::path(name.path).filename().string() + dataset + ending);
}
fs::path progress_file(const fs::path& output) {
  return hidden(output, ".progress");
}

struct Progress {
  std::string fingerprint;
  int64_t slices = 0;
  bool finished = false;
};

void write_progress(const fs::path& file, const Progress& progress) {
  const nlohmann::json json{
      {"fingerprint", progress.fingerprint}, {"slices", progress.slices}, {"finished", progress.finished}};
  write_file(file, json.dump() + "\n");
}

std::optional<Progress> read_progress(const fs::path& file) {
  if (!fs::exists(file)) return std::nullopt;
  const auto json = nlohmann::json::parse(read_file(file), nullptr, /*allow_exceptions=*/false);
  const bool whole = json.is_object() && json.contains("fingerprint") && json["fingerprint"].is_string() &&
                     json.contains("slices") && json["slices"].is_number_integer() && json.contains("finished") &&
                     json["finished"].is_boolean();
  if (!whole) return std::nullopt;  // damaged: as if it were not there
  return Progress{json["fingerprint"], json["slices"], json["finished"]};
}

void write_fully(int descriptor, int64_t offset, const std::byte* bytes, int64_t count, const fs::path& path) {
  while (count > 0) {
    const ssize_t put = pwrite(descriptor, bytes, static_cast<size_t>(count), offset);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) throw_system_error("write", path.string(), errno);
    bytes += put, offset += put, count -= put;
  }
}

// They come back from the file when they are used again.
class GiveBackPages {
 public:
  GiveBackPages(void* pages, size_t bytes) : thread_(start_thread([this, pages, bytes] { run(pages, bytes); })) {}
  ~GiveBackPages() {
    {
      std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  GiveBackPages(const GiveBackPages&) = delete;
  GiveBackPages& operator=(const GiveBackPages&) = delete;

 private:
  void run(void* pages, size_t bytes) {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, std::chrono::milliseconds(10), [&] { return ended_; }))
      madvise(pages, bytes, MADV_DONTNEED);
  }

  std::mutex mutex_;  // guards ended_
  std::condition_variable changed_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace

PartFile::PartFile(const fs::path& output, const std::string& fingerprint, const VolumeInfo& info)
    : voxels_(hidden(output, ".unfinished")), progress_(progress_file(output)), fingerprint_(fingerprint), info_(info) {
  make_folders(voxels_.parent_path());
  lock_ = std::make_unique<FileLock>(
      voxels_, concat(output.string(), ": another process predicts this case; wait for it, or use another folder"));
  const std::optional<Progress> before = read_progress(progress_);
  const bool same = before && before->fingerprint == fingerprint;
  const bool whole = static_cast<int64_t>(fs::file_size(voxels_)) == info.bytes();
  if (same && whole) slices_done_ = std::clamp<int64_t>(before->slices, 0, info.extent.z);
  if (before && !same && !before->finished) slices_set_aside_ = before->slices;
  descriptor_ = open(voxels_.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor_ < 0) throw_system_error("write", voxels_.string(), errno);
  if (slices_done_ > 0) return;
  fs::remove(progress_);
  if (ftruncate(descriptor_, info.bytes()) != 0) throw_system_error("write", voxels_.string(), errno);
}

PartFile::~PartFile() {
  close(descriptor_);
  std::error_code ignored;
  if (slices_done_ == 0) fs::remove(voxels_, ignored);  // nothing to go on from
}

void PartFile::write(int64_t z_begin, int64_t z_end, const std::byte* voxels) {
  const int64_t slice = info_.extent.y * info_.extent.x * size_of(info_.dtype), bytes = (z_end - z_begin) * slice;
  for (int64_t channel = 0; channel < info_.channels; ++channel)
    write_fully(descriptor_, (channel * info_.extent.z + z_begin) * slice, voxels + channel * bytes, bytes, voxels_);
}

void PartFile::mark_done(int64_t slices) {
  if (fdatasync(descriptor_) != 0) throw_system_error("write", voxels_.string(), errno);
  slices_done_ = slices;
  write_progress(progress_, {fingerprint_, slices, false});
}

Volume PartFile::read() const {
  Volume volume = allocate_volume(info_);
  InputFile(voxels_).read(0, {volume.data.data(), static_cast<size_t>(info_.bytes())});
  return volume;
}

void PartFile::read_through(const VolumeInfo& info, const std::function<void(const Volume&)>& use) const {
  constexpr int64_t kMapFrom = int64_t{4} << 20;
  VOX_ASSERT(info.bytes() == info_.bytes());
  if (info.bytes() < kMapFrom) {
    Volume volume = read();
    volume.info = info;
    return use(volume);
  }
  // The memory of a large buffer comes in pages from the system: those of the file take their place.
  Volume volume = allocate_volume(info);
  const auto bytes = static_cast<size_t>(info.bytes());
  void* const pages = mmap(volume.data.data(), bytes, PROT_READ, MAP_SHARED | MAP_FIXED, descriptor_, 0);
  if (pages == MAP_FAILED) throw_system_error("read", voxels_.string(), errno);
  const GiveBackPages passed(pages, bytes);
  use(volume);
}

void PartFile::finish() {
  write_progress(progress_, {fingerprint_, info_.extent.z, true});
  fs::remove(voxels_);
}

bool is_finished(const fs::path& output, const std::string& fingerprint) {
  const std::optional<Progress> progress = read_progress(progress_file(output));
  return progress && progress->fingerprint == fingerprint && progress->finished &&
         existing_volume(output.string()).has_value();
}

void forget_finished(const fs::path& output) {
  std::error_code ignored;
  fs::remove(progress_file(output), ignored);
}

}  // namespace vox
