#include "base/span.h"

#include <algorithm>
#include <memory>
#include <mutex>

namespace vox {
namespace {

std::atomic<bool> recording_on{false};
std::atomic<int64_t> origin_ns{0};

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

struct ThreadLog {
  std::mutex mutex;  // guards records; held by its own thread but for take_spans()
  int thread = 0;
  std::vector<SpanRecord> records;
};

struct AllLogs {
  std::mutex mutex;  // guards logs
  std::vector<std::shared_ptr<ThreadLog>> logs;
};
AllLogs& all_logs() {
  static AllLogs logs;
  return logs;
}

ThreadLog& my_log() {
  thread_local const std::shared_ptr<ThreadLog> log = [] {
    auto mine = std::make_shared<ThreadLog>();
    std::lock_guard lock(all_logs().mutex);
    mine->thread = static_cast<int>(all_logs().logs.size());
    all_logs().logs.push_back(mine);
    return mine;
  }();
  return *log;
}

}  // namespace

void start_recording() {
  take_spans();
  origin_ns = now_ns();
  recording_on = true;
}
void stop_recording() {
  recording_on = false;
}
bool recording() {
  return recording_on.load(std::memory_order_relaxed);
}

std::vector<SpanRecord> take_spans() {
  std::vector<SpanRecord> all;
  std::lock_guard lock(all_logs().mutex);
  for (const auto& log : all_logs().logs) {
    std::lock_guard log_lock(log->mutex);
    all.insert(all.end(), log->records.begin(), log->records.end());
    log->records.clear();
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.begin_ns < b.begin_ns; });
  return all;
}

Span::Span(const char* name) : name_(recording() ? name : nullptr) {
  if (name_) begin_ns_ = now_ns();
}

Span::~Span() {
  if (!name_) return;
  const int64_t origin = origin_ns.load();
  const int64_t end = now_ns();
  ThreadLog& log = my_log();
  std::lock_guard lock(log.mutex);
  log.records.push_back({name_, log.thread, begin_ns_ - origin, end - origin});
}

}  // namespace vox
