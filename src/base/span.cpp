#include "base/span.h"

#include <time.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <set>

namespace vox {
namespace {

std::atomic<bool> recording_on{false};
std::atomic<int64_t> origin_ns{0};

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

int64_t thread_cpu_ns() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
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

void append(SpanRecord record) {
  ThreadLog& log = my_log();
  std::lock_guard lock(log.mutex);
  record.thread = log.thread;
  log.records.push_back(record);
}

}  // namespace

const char* span_name(const std::string& name) {
  static std::mutex mutex;  // guards names
  static std::set<std::string> names;
  std::lock_guard lock(mutex);
  return names.insert(name).first->c_str();
}

void record_span(const char* name, Clock::time_point begin, Clock::time_point end) {
  if (!recording()) return;
  const auto since_origin = [](Clock::time_point time) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count() - origin_ns.load();
  };
  append({name, 0, since_origin(begin), since_origin(end), since_origin(end) - since_origin(begin)});
}

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
  if (!name_) return;
  begin_cpu_ns_ = thread_cpu_ns();
  begin_ns_ = now_ns();
}

Span::~Span() {
  if (!name_) return;
  const int64_t origin = origin_ns.load();
  const int64_t end = now_ns();
  append({name_, 0, begin_ns_ - origin, end - origin, thread_cpu_ns() - begin_cpu_ns_});
}

}  // namespace vox
