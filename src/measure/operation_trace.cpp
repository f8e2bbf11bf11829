#include "measure/operation_trace.h"

#include <torch/csrc/autograd/profiler_kineto.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/file.h"
#include "measure/profile_run.h"

namespace vox {
namespace {

namespace kineto = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;
using EventKind = TracedEvent::Kind;

std::optional<EventKind> kind_of(const std::string& category, const std::string& name) {
  if (category == "cpu_op") return EventKind::kOperation;
  if (category == "cuda_runtime" || category == "cuda_driver") return EventKind::kCall;
  if (category == "kernel" || category == "gpu_memset") return EventKind::kKernel;
  if (category == "gpu_memcpy") return name.find("DtoD") == std::string::npos ? EventKind::kCopy : EventKind::kKernel;
  return std::nullopt;
}

// Microseconds since `base_ns`, with a fraction.
int64_t unix_ns(double microseconds, int64_t base_ns) {
  const double whole = std::floor(microseconds);
  return base_ns + static_cast<int64_t>(whole) * 1000 + std::llround((microseconds - whole) * 1e3);
}

int64_t number_or(const nlohmann::json& object, const char* key, int64_t otherwise) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<int64_t>() : otherwise;
}

std::vector<TracedEvent> read_events(const nlohmann::json& document, int64_t origin_ns) {
  std::vector<TracedEvent> events;
  const int64_t base_ns = number_or(document, "baseTimeNanoseconds", 0);
  for (const nlohmann::json& one : document.at("traceEvents")) {
    if (one.value("ph", "") != "X") continue;
    const std::string name = one.value("name", "");
    const std::optional<EventKind> kind = kind_of(one.value("cat", ""), name);
    if (!kind) continue;
    TracedEvent event{.name = name, .kind = *kind, .track = number_or(one, "tid", 0)};
    event.begin_ns = unix_ns(one.at("ts").get<double>(), base_ns) - origin_ns;
    event.end_ns = event.begin_ns + std::llround(one.at("dur").get<double>() * 1e3);
    if (one.contains("args")) event.correlation = number_or(one.at("args"), "correlation", -1);
    events.push_back(std::move(event));
  }
  return events;
}

// The profiler's clock is that of the day, ours only ever goes forward.
int64_t origin_on_profilers_clock(Clock::time_point origin) {
  using std::chrono::duration_cast, std::chrono::nanoseconds;
  const int64_t now = duration_cast<nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  return now - duration_cast<nanoseconds>(Clock::now() - origin).count();
}

}  // namespace

OperationTrace::OperationTrace(Sees sees) {
  setenv("KINETO_LOG_LEVEL", "99", 0);  // it would tell standard error when it starts and stops
  setenv("TEARDOWN_CUPTI", "0", 0);     // captured graphs do not survive it on every version of CUDA
  std::set<ActivityType> activities{ActivityType::CPU};
  if (sees == Sees::kHostAndGpu) activities.insert(ActivityType::CUDA);
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  try {
    kineto::prepareProfiler(config, activities);
    kineto::enableProfiler(config, activities, {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION});
    running_ = true;
  } catch (const std::exception&) {  // another profiler has the GPU's counters: nothing is seen
  }
}

OperationTrace::~OperationTrace() {
  if (!running_) return;
  try {
    kineto::disableProfiler();
  } catch (const std::exception&) {  // something worse is already on its way up
  }
}

std::vector<TracedEvent> OperationTrace::stop(Clock::time_point origin) {
  if (!std::exchange(running_, false)) return {};
  const int64_t origin_ns = origin_on_profilers_clock(origin);
  const auto result = kineto::disableProfiler();
  const ScratchFolder folder("trace");
  const std::string path = folder.path() / "trace.json";
  result->save(path);
  const auto document = nlohmann::json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
  if (!document.is_object() || !document.contains("traceEvents")) return {};
  return read_events(document, origin_ns);
}

}  // namespace vox
