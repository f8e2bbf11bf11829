#include "measure/profile_spans.h"

#include <algorithm>
#include <cstring>

namespace vox {
namespace {

struct SpanNode {
  const SpanRecord* span;
  double self_ns, cpu_ns;
  int parent;  // index; -1: none
};

bool named(const SpanRecord& span, const char* name) {
  return std::strcmp(span.name, name) == 0;
}

bool is_network_stage(const SpanRecord& span) {
  return std::strncmp(span.name, "forward.", std::strlen("forward.")) == 0;
}

// Spans of one thread nest; each takes its own time away from the one around it.
std::vector<SpanNode> nest_spans(std::vector<const SpanRecord*> spans) {
  std::stable_sort(spans.begin(), spans.end(), [](const SpanRecord* a, const SpanRecord* b) {
    return a->begin_ns != b->begin_ns ? a->begin_ns < b->begin_ns : a->end_ns > b->end_ns;
  });
  std::vector<SpanNode> nodes;
  std::vector<int> open;
  for (const SpanRecord* span : spans) {
    while (!open.empty() && nodes[static_cast<size_t>(open.back())].span->end_ns <= span->begin_ns) open.pop_back();
    const int parent = open.empty() ? -1 : open.back();
    const auto wall = static_cast<double>(span->end_ns - span->begin_ns), cpu = static_cast<double>(span->cpu_ns);
    if (parent >= 0) {
      nodes[static_cast<size_t>(parent)].self_ns -= wall;
      nodes[static_cast<size_t>(parent)].cpu_ns -= cpu;
    }
    open.push_back(static_cast<int>(nodes.size()));
    nodes.push_back({span, wall, cpu, parent});
  }
  return nodes;
}

void add_stage(StageTable& table, const std::string& name, const SpanNode& node) {
  StageTime& stage = table[name];
  ++stage.count;
  stage.self_ms += std::max(0.0, node.self_ns) * 1e-6;
  stage.cpu_ms += std::clamp(node.cpu_ns, 0.0, std::max(0.0, node.self_ns)) * 1e-6;
}

void add_training_thread(const std::vector<SpanNode>& nodes, SpanSums& sums) {
  std::vector<int> step_of(nodes.size(), -1);
  for (size_t i = 0; i < nodes.size(); ++i) {
    const SpanNode& node = nodes[i];
    if (named(*node.span, kStepSpan)) {
      step_of[i] = static_cast<int>(sums.steps.size());
      sums.steps.emplace_back();
    } else if (node.parent >= 0) {
      step_of[i] = step_of[static_cast<size_t>(node.parent)];
    }
    if (step_of[i] < 0) continue;
    const std::string name = named(*node.span, kStepSpan)      ? "other"
                             : named(*node.span, "queue_wait") ? "data_wait"
                                                               : node.span->name;
    add_stage(sums.steps[static_cast<size_t>(step_of[i])], name, node);
  }
}

void add_data_thread(const std::vector<SpanNode>& nodes, SpanSums& sums) {
  std::vector<double> reads, fills;
  std::vector<double> work_ns(nodes.size(), 0);
  for (size_t i = nodes.size(); i-- > 0;) {  // children come after their parents
    const SpanNode& node = nodes[i];
    const bool storage = named(*node.span, "storage");
    work_ns[i] += storage ? node.self_ns : std::max(0.0, node.cpu_ns);
    if (storage) sums.storage_wait_ms += std::max(0.0, node.self_ns - node.cpu_ns) * 1e-6;
    if (node.parent >= 0) work_ns[static_cast<size_t>(node.parent)] += work_ns[i];
    add_stage(sums.data, node.span->name, node);
    if (node.parent >= 0) continue;
    sums.data_busy_ms += static_cast<double>(node.span->end_ns - node.span->begin_ns) * 1e-6;
    (named(*node.span, "sample_read") ? reads : fills).push_back(work_ns[i] * 1e-6);
  }
  for (size_t i = 0; i < std::min(reads.size(), fills.size()); ++i) sums.sample_ms.push_back(reads[i] + fills[i]);
}

}  // namespace

SpanSums sum_spans(const std::vector<SpanRecord>& spans) {
  std::map<int, std::vector<const SpanRecord*>> threads;
  for (const SpanRecord& span : spans)
    if (span.begin_ns >= 0 && !is_network_stage(span)) threads[span.thread].push_back(&span);
  SpanSums sums;
  for (auto& [thread, mine] : threads) {
    const auto has = [&](const char* name) {
      return std::any_of(mine.begin(), mine.end(), [&](const SpanRecord* span) { return named(*span, name); });
    };
    const bool trains = has(kStepSpan), makes_samples = has("sample_read") || has("sample_fill");
    const std::vector<SpanNode> nodes = nest_spans(mine);
    if (trains)
      add_training_thread(nodes, sums);
    else if (makes_samples)
      add_data_thread(nodes, sums);
    else
      for (const SpanNode& node : nodes) add_stage(sums.background, node.span->name, node);
  }
  return sums;
}

std::string name_of_forward_stage(const std::string& span) {
  const size_t dot = span.find('.');
  return dot == std::string::npos ? "other" : span.substr(dot + 1);
}

std::vector<StageLine> forward_lines(const std::vector<SpanRecord>& spans, int64_t steps) {
  const double share = 1e-6 / static_cast<double>(std::max<int64_t>(1, steps));
  std::vector<StageLine> lines;
  double rest = 0;
  for (size_t i = 0; i < spans.size(); ++i) {
    const SpanRecord& forward = spans[i];
    if (!named(forward, "forward") || forward.begin_ns < 0) continue;
    rest += static_cast<double>(forward.end_ns - forward.begin_ns) * share;
    // By begin: what is inside follows. Checkpointed stages run again in the backward pass, and count there.
    for (size_t j = i + 1; j < spans.size() && spans[j].begin_ns < forward.end_ns; ++j) {
      if (spans[j].thread != forward.thread || !is_network_stage(spans[j])) continue;
      const std::string name = name_of_forward_stage(spans[j].name);
      auto line = std::find_if(lines.begin(), lines.end(), [&](const StageLine& one) { return one.name == name; });
      if (line == lines.end()) line = lines.insert(lines.end(), StageLine{name, 0});
      const double ms = static_cast<double>(spans[j].end_ns - spans[j].begin_ns) * share;
      line->ms += ms;
      rest -= ms;
    }
  }
  if (!lines.empty()) lines.push_back({"other", std::max(0.0, rest)});
  return lines;
}

}  // namespace vox
