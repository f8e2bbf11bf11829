#include "volume/budget.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/span.h"
#include "base/text.h"

namespace vox {
namespace {
// A volume that a patch stops using becomes idle without a signal, so waiting looks again after this long.
constexpr std::chrono::milliseconds kLookAgain{2};
// Longer than any decode: past it, all bytes are held by blocks that wait for one another.
constexpr double kGiveUp_s = 60;

thread_local const std::atomic<bool>* t_stopping = nullptr;
thread_local double t_patience_s = kGiveUp_s;
}  // namespace

StopsWaiting::StopsWaiting(const std::atomic<bool>& stopping) {
  t_stopping = &stopping;
}
StopsWaiting::~StopsWaiting() {
  t_stopping = nullptr;
}

GivesWay::GivesWay(double seconds) {
  t_patience_s = seconds;
}
GivesWay::~GivesWay() {
  t_patience_s = kGiveUp_s;
}

Reservation::Reservation(Reservation&& other) noexcept
    : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this == &other) return *this;
  shrink(0);
  budget_ = std::exchange(other.budget_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

void Reservation::shrink(int64_t bytes) {
  if (budget_ == nullptr || bytes >= bytes_) return;
  budget_->give_back(bytes_ - bytes);
  bytes_ = bytes;
}

MemoryBudget::MemoryBudget(int64_t limit, std::function<bool(int64_t)> free_idle)
    : limit_(limit), free_idle_(std::move(free_idle)) {}

bool MemoryBudget::take(int64_t bytes) {
  std::lock_guard lock(mutex_);
  if (used_ + bytes > limit_) return false;
  used_ += bytes;
  peak_ = std::max(peak_, used_);
  return true;
}

Reservation MemoryBudget::reserve(int64_t bytes, const std::string& what) {
  if (bytes > limit_)
    throw NotEnoughMemory(
        concat(what, " needs ", human_bytes(bytes), " in memory at once, but data.cache_gb allows ",
               human_bytes(limit_), "; set data.cache_gb to at least ",
               format_number(static_cast<double>(bytes) / static_cast<double>(int64_t{1} << 30) + 0.005, 2)));
  if (take(bytes)) return {this, bytes};
  const Clock::time_point start = Clock::now();
  while (!take(bytes)) {
    if (free_idle_(bytes)) continue;
    if (t_stopping != nullptr && *t_stopping) throw Error(concat(what, " is no longer wanted"));
    if (std::min(seconds_since(start), seconds_without_change()) > t_patience_s)
      throw MemoryInUse(concat(what, " waited for ", human_bytes(bytes), " of memory, but all ", human_bytes(limit_),
                               " that data.cache_gb allows are in use; raise it, or lower data.num_workers"));
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kLookAgain);
  }
  std::lock_guard lock(mutex_);
  waited_s_ += seconds_since(start);
  return {this, bytes};
}

Reservation MemoryBudget::try_reserve(int64_t bytes, int64_t headroom) {
  std::lock_guard lock(mutex_);
  if (used_ + bytes + headroom > limit_) return {};
  used_ += bytes;
  peak_ = std::max(peak_, used_);
  return {this, bytes};
}

void MemoryBudget::give_back(int64_t bytes) {
  std::lock_guard lock(mutex_);
  used_ -= bytes;
  last_change_ = std::chrono::steady_clock::now();
  changed_.notify_all();
}

double MemoryBudget::seconds_without_change() const {
  std::lock_guard lock(mutex_);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - last_change_).count();
}

int64_t MemoryBudget::used() const {
  std::lock_guard lock(mutex_);
  return used_;
}
int64_t MemoryBudget::peak() const {
  std::lock_guard lock(mutex_);
  return peak_;
}
double MemoryBudget::waited_s() const {
  std::lock_guard lock(mutex_);
  return waited_s_;
}

}  // namespace vox
