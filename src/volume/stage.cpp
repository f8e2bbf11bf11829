#include "volume/stage.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>

#include "base/buffer.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/span.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "volume/glob.h"

namespace vox {
namespace {

struct CopyJob {
  fs::path from, to;
  int64_t bytes = 0;
};

bool is_current(const CopyJob& job) {
  return fs::exists(job.to) && fs::file_size(job.to) == static_cast<uintmax_t>(job.bytes) &&
         fs::last_write_time(job.to) == fs::last_write_time(job.from);
}

void copy_file(const CopyJob& job, std::atomic<int64_t>& copied) {
  const Span span("read");
  const auto time = fs::last_write_time(job.from);
  const InputFile source(job.from);
  OutputFile target(job.to);
  Buffer part(std::min<int64_t>(std::max<int64_t>(source.size(), 1), int64_t{4} << 20));
  for (int64_t at = 0; at < source.size();) {
    const int64_t bytes = std::min(part.size(), source.size() - at);
    const std::span<std::byte> piece(part.data(), static_cast<size_t>(bytes));
    source.read(at, piece);
    target.write(piece);
    at += bytes;
    copied += bytes;
  }
  target.commit();
  fs::last_write_time(job.to, time);  // what is_current() compares next time
}

// Two folders may hold files of one name: each folder has its own place.
fs::path staged_path(const fs::path& file, const fs::path& folder) {
  const std::string parent = fs::absolute(file).lexically_normal().parent_path().string();
  return folder / ContentHash().add(parent).hex() / file.filename();
}

void add_jobs(const fs::path& from, const fs::path& to, std::map<fs::path, CopyJob>& jobs) {
  if (!fs::is_directory(from)) {
    VOX_CHECK(fs::exists(from), "there is no file ", from.string());
    jobs[to] = {from, to, static_cast<int64_t>(fs::file_size(from))};
    return;
  }
  for (const auto& entry : fs::directory_iterator(from)) add_jobs(entry.path(), to / entry.path().filename(), jobs);
}

void require_space(const fs::path& folder, int64_t bytes) {
  make_folders(folder);
  const auto available = static_cast<int64_t>(fs::space(folder).available);
  if (bytes > available)
    throw Error(concat("data.stage_dir ", folder.string(), " has ", human_bytes(available),
                       " free, but the dataset's files to copy there take ", human_bytes(bytes)),
                Fault::kMachine);
}

}  // namespace

void stage_dataset(Dataset& dataset, const std::string& folder, ThreadPool& pool, const StoreProgress& progress) {
  std::map<fs::path, CopyJob> jobs;
  const auto stage_name = [&](std::string& name) {
    if (name.empty() || !volume_exists(name)) return;  // a missing file is for the store to report
    const fs::path file = file_of_volume(name), copy = staged_path(file, folder);
    add_jobs(file, copy, jobs);
    name = copy.string() + name.substr(file.string().size());
  };
  for (Case& item : dataset.cases) {
    for (std::string& image : item.images) stage_name(image);
    stage_name(item.label);
    stage_name(item.mask);
  }
  std::vector<CopyJob> due;
  int64_t bytes = 0;
  for (const auto& [to, job] : jobs) {
    if (is_current(job)) continue;
    due.push_back(job);
    bytes += job.bytes;
  }
  require_space(folder, bytes);
  std::atomic<int64_t> copied{0};
  std::mutex mutex;  // guards done and the callback
  int64_t done = 0;
  pool.for_each(static_cast<int64_t>(due.size()), [&](int64_t i) {
    copy_file(due[static_cast<size_t>(i)], copied);
    std::lock_guard lock(mutex);
    ++done;
    if (progress.update) progress.update("staging files", done, static_cast<int64_t>(due.size()), copied.load());
  });
}

}  // namespace vox
