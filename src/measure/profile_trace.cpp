#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "measure/profile.h"

namespace vox {
namespace {

using nlohmann::json;

enum Process { kSpanTracks, kOperationTracks, kGpuTracks };  // numbers that group the tracks of a trace

json complete_event(const std::string& name, const char* category, Process process, int64_t track, int64_t begin_ns,
                    int64_t end_ns) {
  return {{"name", name},
          {"ph", "X"},
          {"cat", category},
          {"pid", static_cast<int>(process)},
          {"tid", track},
          {"ts", static_cast<double>(begin_ns) / 1e3},
          {"dur", static_cast<double>(end_ns - begin_ns) / 1e3}};
}

json name_of_track(const char* what, Process process, int64_t track, const std::string& name) {
  return {{"name", what}, {"ph", "M"}, {"pid", static_cast<int>(process)}, {"tid", track}, {"args", {{"name", name}}}};
}

using TrackNames = std::map<int, std::set<std::string>>;

void add_spans(const std::vector<SpanRecord>& spans, const char* category, json& events, TrackNames& names) {
  for (const SpanRecord& span : spans) {
    if (span.begin_ns < 0) continue;
    names[span.thread].insert(span.name);
    events.push_back(complete_event(span.name, category, kSpanTracks, span.thread, span.begin_ns, span.end_ns));
    events.back()["args"] = {{"cpu_us", static_cast<double>(span.cpu_ns) / 1e3}};
  }
}

const char* category_of(TracedEvent::Kind kind) {
  switch (kind) {
    case TracedEvent::Kind::kOperation:
      return "cpu_op";
    case TracedEvent::Kind::kCall:
      return "cuda_runtime";
    case TracedEvent::Kind::kKernel:
      return "kernel";
    case TracedEvent::Kind::kCopy:
      break;
  }
  return "gpu_memcpy";
}

void add_operations(const std::vector<TracedEvent>& traced, json& events) {
  std::set<std::pair<int, int64_t>> tracks;
  for (const TracedEvent& event : traced) {
    const Process process = event.on_gpu() ? kGpuTracks : kOperationTracks;
    events.push_back(
        complete_event(event.name, category_of(event.kind), process, event.track, event.begin_ns, event.end_ns));
    if (event.correlation >= 0) events.back()["args"] = {{"correlation", event.correlation}};
    tracks.emplace(process, event.track);
  }
  for (const auto& [process, track] : tracks)
    events.push_back(name_of_track("thread_name", static_cast<Process>(process), track,
                                   concat(process == kGpuTracks ? "stream " : "operations of thread ", track)));
  if (traced.empty()) return;
  events.push_back(name_of_track("process_name", kOperationTracks, 0, "operations"));
  events.push_back(name_of_track("process_name", kGpuTracks, 0, "GPU"));
}

}  // namespace

std::string write_trace(const StepRecord& record, const std::string& path) {
  const fs::path file = fs::is_directory(path) ? fs::path(path) / "voxloom.pt.trace.json" : fs::path(path);
  json events = json::array();
  TrackNames names;
  add_spans(record.spans, "voxloom", events, names);
  add_spans(record.details.spans, "voxloom_traced", events, names);
  for (const auto& [thread, seen] : names) {
    const char* role = seen.contains(kStepSpan) ? "training" : seen.contains("sample_fill") ? "samples" : "background";
    events.push_back(name_of_track("thread_name", kSpanTracks, thread, concat(role, " ", thread)));
  }
  events.push_back(name_of_track("process_name", kSpanTracks, 0, "voxloom"));
  add_operations(record.details.events, events);
  write_file(file, json{{"schemaVersion", 1}, {"displayTimeUnit", "ms"}, {"traceEvents", events}}.dump());
  return file.string();
}

}  // namespace vox
