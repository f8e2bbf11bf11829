// How long each stage takes. A span is a name and two readings of the clock; while recording is off it costs one
// relaxed load. Names are string literals: "read", "decode", "preprocess", "gather", "forward", ...
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace vox {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct SpanRecord {
  const char* name;
  int thread;                // small number, in order of first use
  int64_t begin_ns, end_ns;  // since start_recording()
  int64_t cpu_ns;            // of its thread meanwhile; less than it lasted where the thread waited
};

void start_recording();
void stop_recording();
bool recording();
std::vector<SpanRecord> take_spans();  // all threads' records so far, by begin; they are forgotten here

const char* span_name(const std::string& name);  // the same text, kept for good: for names that are not literals
void record_span(const char* name, Clock::time_point begin, Clock::time_point end);  // where a scope would not do

class Span {
 public:
  explicit Span(const char* name);
  ~Span();
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  const char* name_;  // null while recording is off
  int64_t begin_ns_ = 0, begin_cpu_ns_ = 0;
};

}  // namespace vox
