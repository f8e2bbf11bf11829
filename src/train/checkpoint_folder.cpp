#include "train/checkpoint_folder.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/start_thread.h"
#include "base/text.h"

namespace vox {
namespace {

constexpr const char* kSuffix = ".safetensors";
constexpr const char* kBefore = ".last-before";  // the old `last` while a new one is being written

bool is_epoch_file(const fs::path& path) {
  return path.filename().string().starts_with("epoch-") && path.extension() == kSuffix;
}

bool is_checkpoint(const fs::path& path) {
  return path.extension() == kSuffix && !path.filename().string().starts_with(".");
}

std::string epoch_name(int64_t epoch) {
  const std::string digits = std::to_string(epoch);
  return concat("epoch-", std::string(digits.size() < 4 ? 4 - digits.size() : 0, '0'), digits, kSuffix);
}

std::vector<fs::path> files_of(const fs::path& folder, bool (*wanted)(const fs::path&)) {
  std::vector<fs::path> files;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(folder, missing))
    if (wanted(entry.path())) files.push_back(entry.path());
  std::sort(files.begin(), files.end(), [](const fs::path& a, const fs::path& b) {
    return natural_less(a.filename().string(), b.filename().string());
  });
  return files;
}

void link_or_copy(const fs::path& from, const fs::path& to) {
  std::error_code problem;
  fs::remove(to, problem);
  fs::create_hard_link(from, to, problem);
  if (problem) fs::copy_file(from, to, fs::copy_options::overwrite_existing, problem);  // file systems without links
  if (problem) throw_system_error("write", to.string(), problem.value());
}

void rename_file(const fs::path& from, const fs::path& to) {
  std::error_code problem;
  fs::rename(from, to, problem);
  if (problem) throw_system_error("write", to.string(), problem.value());
}

int64_t step_or_newest(const fs::path& path) {
  try {
    return std::stoll(read_checkpoint_metadata(path).at("step"));
  } catch (const std::exception&) {
    return INT64_MAX;
  }
}

bool is_intact(const fs::path& path) {
  if (!fs::exists(path)) return false;
  try {
    read_checkpoint_file(path);
    return true;
  } catch (const Error& error) {
    if (error.fault() != Fault::kInput) throw;
    return false;
  }
}

}  // namespace

void CheckpointFolder::remove_leftovers() const {
  std::error_code ignored;
  const auto leftover = [](const fs::path& path) {
    const std::string name = path.filename().string();
    return name.starts_with(".") && (ends_with(name, ".part") || name == kBefore);
  };
  for (const fs::path& path : files_of(folder_, leftover)) fs::remove(path, ignored);
}

void CheckpointFolder::link(const fs::path& file, const fs::path& name) const {
  const fs::path temporary = folder_ / concat(".", name.string(), ".part");
  link_or_copy(file, temporary);
  rename_file(temporary, folder_ / name);
}

bool CheckpointFolder::holds(const fs::path& file) const {
  return fs::exists(folder_) && fs::equivalent(fs::absolute(file).parent_path(), folder_);
}

void CheckpointFolder::mend_best(const fs::path& file) const {
  if (!holds(file)) return;
  const int64_t named = step_or_newest(best()), wanted = step_or_newest(file);
  if (named < wanted || (named > wanted && !is_intact(best()))) link(file, best().filename());
}

bool CheckpointFolder::move_later(int64_t step, const fs::path& to) const {
  bool moved = false;
  for (const fs::path& path : files_of(folder_, is_checkpoint)) {
    if (step_or_newest(path) <= step) continue;
    make_folders(to);
    rename_file(path, to / path.filename());
    moved = true;
  }
  return moved;
}

// `newest` was written last: where epochs have become longer, those of before have larger numbers.
void CheckpointFolder::prune_epochs(int64_t newest, int64_t keep) const {
  std::vector<fs::path> files = files_of(folder_, is_epoch_file);
  const auto after = std::find(files.begin(), files.end(), folder_ / epoch_name(newest));
  if (after != files.end()) std::rotate(files.begin(), after + 1, files.end());
  std::error_code ignored;
  for (size_t i = 0; keep > 0 && i + static_cast<size_t>(keep) < files.size(); ++i) fs::remove(files[i], ignored);
}

void CheckpointFolder::write(const Metadata& metadata, const std::vector<TensorToStore>& tensors,
                             const CheckpointLinks& links) const {
  make_folders(folder_);
  const fs::path before = folder_ / kBefore;
  const bool replaces = fs::exists(last());
  if (replaces) link_or_copy(last(), before);
  write_checkpoint_file(last(), metadata, tensors);
  if (replaces) rename_file(before, folder_ / concat("previous", kSuffix));
  if (links.best) link(last(), best().filename());
  if (links.epoch) {
    link(last(), epoch_name(*links.epoch));
    prune_epochs(*links.epoch, links.keep_last);
  }
}

std::vector<fs::path> CheckpointFolder::newest_first() const {
  std::vector<std::pair<int64_t, fs::path>> found;
  std::set<std::pair<dev_t, ino_t>> seen;
  std::vector<fs::path> files = files_of(folder_, is_checkpoint);
  // `last` names its file rather than a link to it does.
  std::stable_partition(files.begin(), files.end(), [&](const fs::path& path) { return path == last(); });
  for (const fs::path& path : files) {
    struct stat facts {};
    if (stat(path.c_str(), &facts) != 0 || !seen.insert({facts.st_dev, facts.st_ino}).second) continue;
    found.emplace_back(step_or_newest(path), path);
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<fs::path> ordered;
  for (auto& [step, path] : found) ordered.push_back(std::move(path));
  return ordered;
}

std::optional<FoundCheckpoint> newest_intact(const CheckpointFolder& folder) {
  std::vector<std::string> damaged;
  for (const fs::path& path : folder.newest_first()) {
    try {
      return FoundCheckpoint{read_checkpoint_file(path), damaged};
    } catch (const Error& error) {
      if (error.fault() != Fault::kInput) throw;
      damaged.push_back(error.what());
    }
  }
  VOX_CHECK(damaged.empty(), "no checkpoint can be used: ", join(damaged, "; "),
            ". Start anew with --resume never, or name a good file with --resume FILE.");
  return std::nullopt;
}

BackgroundWriter::BackgroundWriter() : thread_(start_thread([this] { work(); })) {}

BackgroundWriter::~BackgroundWriter() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void BackgroundWriter::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || job_; });
    if (!job_) return;
    lock.unlock();
    std::exception_ptr failure;
    try {
      job_();
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    job_ = nullptr;
    if (failure && !failure_) failure_ = failure;
    changed_.notify_all();
  }
}

void BackgroundWriter::rethrow_locked(std::unique_lock<std::mutex>& lock) {
  if (!failure_) return;
  const std::exception_ptr failure = std::exchange(failure_, nullptr);
  lock.unlock();
  std::rethrow_exception(failure);
}

void BackgroundWriter::submit(std::function<void()> job) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !job_; });
  rethrow_locked(lock);
  job_ = std::move(job);
  changed_.notify_all();
}

void BackgroundWriter::rethrow_failure() {
  std::unique_lock lock(mutex_);
  rethrow_locked(lock);
}

void BackgroundWriter::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !job_; });
  rethrow_locked(lock);
}

bool BackgroundWriter::busy() const {
  std::lock_guard lock(mutex_);
  return static_cast<bool>(job_);
}

}  // namespace vox
