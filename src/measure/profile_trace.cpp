#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "measure/profile.h"

namespace vox {

std::string write_trace(const std::vector<SpanRecord>& spans, const std::string& path) {
  const fs::path file = fs::is_directory(path) ? fs::path(path) / "voxloom.pt.trace.json" : fs::path(path);
  nlohmann::json events = nlohmann::json::array();
  std::map<int, std::set<std::string>> names;
  for (const SpanRecord& span : spans) {
    if (span.begin_ns < 0) continue;
    names[span.thread].insert(span.name);
    events.push_back({{"name", span.name},
                      {"ph", "X"},
                      {"cat", "voxloom"},
                      {"pid", 0},
                      {"tid", span.thread},
                      {"ts", static_cast<double>(span.begin_ns) / 1e3},
                      {"dur", static_cast<double>(span.end_ns - span.begin_ns) / 1e3},
                      {"args", {{"cpu_us", static_cast<double>(span.cpu_ns) / 1e3}}}});
  }
  for (const auto& [thread, seen] : names) {
    const char* role = seen.contains(kStepSpan) ? "training" : seen.contains("sample_fill") ? "samples" : "background";
    events.push_back({{"name", "thread_name"},
                      {"ph", "M"},
                      {"pid", 0},
                      {"tid", thread},
                      {"args", {{"name", concat(role, " ", thread)}}}});
  }
  write_file(file, nlohmann::json{{"displayTimeUnit", "ms"}, {"traceEvents", events}}.dump());
  return file.string();
}

}  // namespace vox
