#include "measure/traced_events.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>

#include "base/error.h"
#include "measure/profile_spans.h"

namespace vox {
namespace {

using Kind = TracedEvent::Kind;

struct Dice {
  explicit Dice(unsigned seed) : engine(seed) {}
  int64_t operator()(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(engine); }
  std::mt19937 engine;
};

TEST(TracedEvents, CoveredTimeIsThatOfTheNanosecondsCounted) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    Dice dice(seed);
    std::vector<TimeInterval> intervals;
    std::vector<bool> covered(150, false);
    for (int64_t i = dice(0, 12); i > 0; --i) {
      const int64_t begin = dice(0, 99), end = begin + dice(0, 50);
      intervals.push_back({begin, end});
      for (int64_t ns = begin; ns < end; ++ns) covered[static_cast<size_t>(ns)] = true;
    }
    EXPECT_EQ(covered_ns(intervals), std::count(covered.begin(), covered.end(), true)) << "seed " << seed;
  }
}

// Operations that nest as calls do, on several threads.
std::vector<TracedEvent> random_operations(Dice& dice) {
  std::vector<TracedEvent> events;
  const std::function<void(int64_t, int64_t, int64_t, int)> fill = [&](int64_t thread, int64_t begin, int64_t end,
                                                                       int depth) {
    for (int64_t at = begin; at < end && depth < 4;) {
      const int64_t from = at + dice(0, 5), to = std::min(end, from + dice(1, 40));
      if (from >= to || (from == begin && to == end)) break;  // none that another fills: they could change places
      events.push_back({concat("op", dice(0, 5)), Kind::kOperation, thread, from, to, -1});
      fill(thread, from, to, depth + 1);
      at = to;
    }
  };
  for (int64_t thread = dice(1, 3); thread > 0; --thread) fill(thread, 0, 200, 0);
  std::shuffle(events.begin(), events.end(), dice.engine);
  return events;
}

TEST(TracedEvents, OperationsTakeTheTimeInWhichTheyAreInnermost) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    Dice dice(seed);
    const std::vector<TracedEvent> events = random_operations(dice);
    std::map<std::string, std::pair<double, double>> expected;  // calls, ns
    for (const TracedEvent& event : events) ++expected[event.name].first;
    for (int64_t thread = 1; thread <= 3; ++thread) {
      for (int64_t ns = 0; ns < 200; ++ns) {
        const TracedEvent* inner = nullptr;  // of those around this nanosecond the shortest
        for (const TracedEvent& event : events) {
          if (event.track != thread || event.begin_ns > ns || event.end_ns <= ns) continue;
          if (!inner || event.end_ns - event.begin_ns < inner->end_ns - inner->begin_ns) inner = &event;
        }
        if (inner) ++expected[inner->name].second;
      }
    }
    const std::vector<OperationLine> lines = slowest_operations(events, 2, 100);
    ASSERT_EQ(lines.size(), expected.size()) << "seed " << seed;
    for (size_t i = 0; i < lines.size(); ++i) {
      EXPECT_NEAR(2e6 * lines[i].ms, expected[lines[i].name].second, 1e-6) << "seed " << seed;
      EXPECT_DOUBLE_EQ(lines[i].calls, expected[lines[i].name].first / 2) << "seed " << seed;
      if (i > 0) {
        EXPECT_GE(lines[i - 1].ms, lines[i].ms);
      }
    }
    EXPECT_LE(slowest_operations(events, 2, 3).size(), 3U);
  }
}

TEST(TracedEvents, WorkOfAGpuBelongsToTheStageThatEnqueuedIt) {
  const std::vector<SpanRecord> spans{{kStepSpan, 0, 0, 100, 0},
                                      {"transfer", 0, 0, 10, 0},
                                      {"forward", 0, 10, 50, 0},
                                      {"forward.encoder 8x8x8", 0, 20, 30, 0},
                                      {"sample_fill", 1, 0, 100, 0}};
  std::vector<TracedEvent> events;
  const auto launch = [&](const char* name, Kind kind, int64_t at, int64_t length) {
    const auto number = static_cast<int64_t>(events.size());
    events.push_back({"cudaLaunchKernel", Kind::kCall, 7, at, at + 1, number});
    events.push_back({name, kind, 1, 1000 * at, 1000 * at + length, number});
  };
  launch("void vox::gather_kernel<float>(Plan)", Kind::kKernel, 3, 1'000'000);
  launch("vox::point_kernel(Plan)", Kind::kKernel, 4, 2'000'000);
  launch("Memcpy HtoD (Pinned -> Device)", Kind::kCopy, 5, 3'000'000);
  launch("conv", Kind::kKernel, 25, 4'000'000);
  launch("conv", Kind::kKernel, 40, 5'000'000);
  launch("norm", Kind::kKernel, 90, 6'000'000);
  const std::vector<StageLine> lines = gpu_time_by_span(events, spans, 1);
  const std::vector<std::pair<std::string, double>> expected{{"gather", 1},         {"intensity", 2},
                                                             {"host_to_device", 3}, {"forward.encoder 8x8x8", 4},
                                                             {"forward", 5},        {"other", 6}};
  ASSERT_EQ(lines.size(), expected.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i].name, expected[i].first);
    EXPECT_DOUBLE_EQ(lines[i].ms, expected[i].second);
  }
  const std::vector<OperationLine> kernels = slowest_operations(events, 1, 15);
  ASSERT_EQ(kernels.size(), 5U);
  EXPECT_EQ(kernels[0].name, "conv");
  EXPECT_DOUBLE_EQ(kernels[0].calls, 2);
  EXPECT_DOUBLE_EQ(kernels[0].ms, 9);
}

TEST(TracedEvents, BusyIsTheShareFromTheFirstKernelToTheLast) {
  const std::vector<TracedEvent> events{{"a", Kind::kKernel, 1, 100, 150, 1},
                                        {"b", Kind::kKernel, 2, 140, 160, 2},  // on another stream meanwhile
                                        {"copy", Kind::kCopy, 2, 160, 200, 3},
                                        {"c", Kind::kKernel, 1, 180, 200, 4},
                                        {"cudaStreamSynchronize", Kind::kCall, 9, 0, 500, 5},
                                        {"cudaMemcpyAsync", Kind::kCall, 9, 0, 5, 6}};
  EXPECT_DOUBLE_EQ(gpu_busy_share(events), 0.8);
  EXPECT_EQ(count_sync_points(events), 1);
  EXPECT_DOUBLE_EQ(gpu_busy_share({}), 0);
}

TEST(TracedEvents, NamesOfKernelsStayShort) {
  EXPECT_EQ(kernel_name("void vox::(anonymous namespace)::point_kernel<float, 4>(vox::Plan, int)"),
            "vox::point_kernel<float, 4>");
  EXPECT_EQ(kernel_name("sm90_xmma_fprop_nhwc"), "sm90_xmma_fprop_nhwc");
  EXPECT_EQ(kernel_name("Memcpy DtoD (Device -> Device)"), "Memcpy DtoD (Device -> Device)");
}

TEST(TracedEvents, StagesOfTheNetworkAddUpToItsForwardPass) {
  const std::vector<SpanRecord> spans{{kStepSpan, 0, 0, 10'000'000, 0},
                                      {"forward", 0, 1'000'000, 6'000'000, 0},
                                      {"forward.encoder 8x8x8", 0, 1'500'000, 3'500'000, 0},
                                      {"forward.decoder 8x8x8", 0, 3'500'000, 5'000'000, 0},
                                      {"backward", 0, 6'000'000, 9'000'000, 0},
                                      {"forward.encoder 8x8x8", 0, 7'000'000, 8'000'000, 0}};  // checkpointed
  const std::vector<StageLine> lines = forward_lines(spans, 1);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0].name, "encoder 8x8x8");
  EXPECT_DOUBLE_EQ(lines[0].ms, 2);
  EXPECT_EQ(lines[1].name, "decoder 8x8x8");
  EXPECT_DOUBLE_EQ(lines[1].ms, 1.5);
  EXPECT_EQ(lines[2].name, "other");
  EXPECT_NEAR(lines[2].ms, 1.5, 1e-9);
  const SpanSums sums = sum_spans(spans);
  ASSERT_EQ(sums.steps.size(), 1U);
  EXPECT_NEAR(sums.steps[0].at("forward").self_ms, 5, 1e-9) << "one stage of the step all the same";
  EXPECT_NEAR(sums.steps[0].at("backward").self_ms, 3, 1e-9);
}

}  // namespace
}  // namespace vox
