#include "measure/traced_events.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "measure/profile_spans.h"

namespace vox {
namespace {

struct Usage {
  int64_t calls = 0, ns = 0;
};
using UsageTable = std::map<std::string, Usage>;

int64_t length_ns(const TracedEvent& event) {
  return event.end_ns - event.begin_ns;
}

UsageTable usage_of_gpu(const std::vector<TracedEvent>& events) {
  UsageTable table;
  for (const TracedEvent& event : events) {
    if (!event.on_gpu()) continue;
    Usage& usage = table[kernel_name(event.name)];
    ++usage.calls;
    usage.ns += length_ns(event);
  }
  return table;
}

// Operations of one thread nest; each takes its time away from the one around it.
UsageTable usage_of_host(const std::vector<TracedEvent>& events) {
  std::map<int64_t, std::vector<const TracedEvent*>> threads;
  for (const TracedEvent& event : events)
    if (event.kind == TracedEvent::Kind::kOperation) threads[event.track].push_back(&event);
  UsageTable table;
  for (auto& [thread, mine] : threads) {
    std::stable_sort(mine.begin(), mine.end(), [](const TracedEvent* a, const TracedEvent* b) {
      return a->begin_ns != b->begin_ns ? a->begin_ns < b->begin_ns : a->end_ns > b->end_ns;
    });
    std::vector<const TracedEvent*> open;
    for (const TracedEvent* event : mine) {
      while (!open.empty() && open.back()->end_ns <= event->begin_ns) open.pop_back();
      if (!open.empty()) table[open.back()->name].ns -= std::min(event->end_ns, open.back()->end_ns) - event->begin_ns;
      Usage& usage = table[event->name];
      ++usage.calls;
      usage.ns += length_ns(*event);
      open.push_back(event);
    }
  }
  return table;
}

std::vector<const SpanRecord*> spans_of_training(const std::vector<SpanRecord>& spans) {
  std::set<int> threads;
  for (const SpanRecord& span : spans)
    if (std::strcmp(span.name, kStepSpan) == 0) threads.insert(span.thread);
  std::vector<const SpanRecord*> result;
  for (const SpanRecord& span : spans)
    if (threads.contains(span.thread) && std::strcmp(span.name, kStepSpan) != 0) result.push_back(&span);
  return result;
}

const SpanRecord* innermost_at(const std::vector<const SpanRecord*>& spans, int64_t ns) {
  const SpanRecord* found = nullptr;
  for (const SpanRecord* span : spans) {
    if (span->begin_ns > ns || span->end_ns < ns) continue;
    if (!found || span->begin_ns >= found->begin_ns) found = span;
  }
  return found;
}

std::string stage_of(const TracedEvent& event, const SpanRecord* span) {
  const std::string name = span ? span->name : "other";
  if (name != "transfer") return name;
  if (event.kind == TracedEvent::Kind::kCopy) return "host_to_device";
  return event.name.find("gather") != std::string::npos ? "gather" : "intensity";
}

}  // namespace

int64_t covered_ns(std::vector<TimeInterval> intervals) {
  std::sort(intervals.begin(), intervals.end(),
            [](const TimeInterval& a, const TimeInterval& b) { return a.begin_ns < b.begin_ns; });
  int64_t covered = 0, until = intervals.empty() ? 0 : intervals.front().begin_ns;
  for (const TimeInterval& one : intervals) {
    covered += std::max<int64_t>(0, one.end_ns - std::max(one.begin_ns, until));
    until = std::max(until, one.end_ns);
  }
  return covered;
}

std::vector<OperationLine> slowest_operations(const std::vector<TracedEvent>& events, int64_t steps, size_t at_most) {
  const bool gpu = std::any_of(events.begin(), events.end(), [](const TracedEvent& event) { return event.on_gpu(); });
  const double share = 1.0 / static_cast<double>(std::max<int64_t>(1, steps));
  std::vector<OperationLine> lines;
  for (const auto& [name, usage] : gpu ? usage_of_gpu(events) : usage_of_host(events))
    lines.push_back({name, static_cast<double>(usage.calls) * share, 1e-6 * static_cast<double>(usage.ns) * share});
  std::stable_sort(lines.begin(), lines.end(),
                   [](const OperationLine& a, const OperationLine& b) { return a.ms > b.ms; });
  lines.resize(std::min(lines.size(), at_most));
  return lines;
}

double gpu_busy_share(const std::vector<TracedEvent>& events) {
  std::vector<TimeInterval> kernels;
  for (const TracedEvent& event : events)
    if (event.kind == TracedEvent::Kind::kKernel) kernels.push_back({event.begin_ns, event.end_ns});
  if (kernels.empty()) return 0;
  TimeInterval all = kernels.front();
  for (const TimeInterval& one : kernels)
    all = {std::min(all.begin_ns, one.begin_ns), std::max(all.end_ns, one.end_ns)};
  const int64_t length = std::max<int64_t>(1, all.end_ns - all.begin_ns);
  return static_cast<double>(covered_ns(std::move(kernels))) / static_cast<double>(length);
}

int64_t count_sync_points(const std::vector<TracedEvent>& events) {
  static const std::set<std::string> kWaiting{
      "cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy", "cudaMemset",
      "cuStreamSynchronize",   "cuCtxSynchronize",      "cuEventSynchronize"};
  return std::count_if(events.begin(), events.end(), [](const TracedEvent& event) {
    return event.kind == TracedEvent::Kind::kCall && kWaiting.contains(event.name);
  });
}

std::vector<StageLine> gpu_time_by_span(const std::vector<TracedEvent>& events, const std::vector<SpanRecord>& spans,
                                        int64_t steps) {
  const std::vector<const SpanRecord*> training = spans_of_training(spans);
  std::map<int64_t, const SpanRecord*> launched;
  for (const TracedEvent& event : events)
    if (event.kind == TracedEvent::Kind::kCall && event.correlation >= 0)
      launched.emplace(event.correlation, innermost_at(training, event.begin_ns));
  std::vector<StageLine> lines;
  for (const TracedEvent& event : events) {
    if (!event.on_gpu()) continue;
    const auto call = launched.find(event.correlation);
    const std::string name = stage_of(event, call == launched.end() ? nullptr : call->second);
    auto line = std::find_if(lines.begin(), lines.end(), [&](const StageLine& one) { return one.name == name; });
    if (line == lines.end()) line = lines.insert(lines.end(), StageLine{name, 0});
    line->ms += 1e-6 * static_cast<double>(length_ns(event)) / static_cast<double>(std::max<int64_t>(1, steps));
  }
  return lines;
}

std::string kernel_name(const std::string& signature) {
  static const std::string kUnnamed = "(anonymous namespace)::";
  std::string name = signature.starts_with("void ") ? signature.substr(5) : signature;
  for (size_t at; (at = name.find(kUnnamed)) != std::string::npos;) name.erase(at, kUnnamed.size());
  if (name.starts_with("Memcpy") || name.starts_with("Memset")) return name;
  int depth = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    depth += name[i] == '<' ? 1 : name[i] == '>' ? -1 : 0;
    if (name[i] == '(' && depth == 0 && i > 0) return name.substr(0, i);
  }
  return name;
}

}  // namespace vox
