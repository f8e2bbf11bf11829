#include "measure/profile_model.h"

#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "measure/handover.h"
#include "measure/profile_run.h"
#include "measure/step_details.h"

namespace vox {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kSteps = 10;

// Two samples of 10 ms a step on one of two threads' worth of CPUs; the step itself computes for 2 ms.
Profile bound_by_samples() {
  Profile profile;
  StepRecord& record = profile.record;
  record.steps = kSteps;
  record.micro_batch = 2;
  record.data_threads = record.compute_threads = 1;
  record.cpus = 2;
  record.sums.sample_ms.assign(2 * kSteps, 10);
  record.sums.steps.assign(kSteps, StageTable{{"backward", {1, 2, 2}}});
  record.cpu_ms = (20 + 2) * kSteps;
  profile.step_ms = 20;
  profile.own_ms = 2;
  profile.data_wait_ms = 18;
  return profile;
}

TEST(StepModel, TheStepAsItIsTakesWhatWasMeasured) {
  EXPECT_NEAR(StepModel(bound_by_samples(), {}).predict({}), 20, 0.2);
}

TEST(StepModel, TwoThreadsAreHeldBackByTheCpusThatTheStepAlsoNeeds) {
  EXPECT_NEAR(StepModel(bound_by_samples(), {}).predict({.workers = 2}), (20 + 2) / 2.0, 0.2);
}

TEST(StepModel, SamplesThatCostNothingLeaveTheStepItself) {
  Profile profile = bound_by_samples();
  EXPECT_NEAR(StepModel(profile, {}).predict({.data_ms_saved = 20}), 2, 0.05);
  profile.record.cpu_ms += 150;  // of samples that were begun before the first step that was measured
  EXPECT_NEAR(StepModel(profile, {}).predict({.data_ms_saved = 20}), 2, 0.05);
}

TEST(StepModel, AStepThatStoodAsideForItsSamplesDoesSoNoLonger) {
  Profile profile = bound_by_samples();
  profile.record.sums.steps.assign(kSteps, StageTable{{"backward", {1, 5, 2}}});
  profile.own_ms = 5;
  profile.data_wait_ms = 15;
  EXPECT_NEAR(StepModel(profile, {}).predict({.data_ms_saved = 20}), 2, 0.05);
  profile.record.on_gpu = true;  // it waited for the GPU, and will again
  EXPECT_NEAR(StepModel(profile, {}).predict({.data_ms_saved = 20}), 5, 0.05);
}

TEST(StepModel, SamplesAreNotBlamedForTheCpusThatOtherProcessesTook) {
  Profile profile = bound_by_samples();
  profile.record.sums.sample_ms.assign(2 * kSteps, 0.05);
  profile.record.sums.steps.assign(kSteps, StageTable{{"backward", {1, 100, 60}}});
  profile.record.cpu_ms = 60.1 * kSteps;
  profile.step_ms = profile.own_ms = 100;
  profile.data_wait_ms = 0;
  EXPECT_NEAR(StepModel(profile, {}).predict({.data_ms_saved = 0.1}), 100, 0.2);
}

TEST(StepModel, AStepThatWasTimedWithoutItsSamplesTakesThatOnceTheyCostNothing) {
  Profile profile = bound_by_samples();
  profile.own_ms = 5;
  profile.data_wait_ms = 15;
  profile.record.alone_ms = 3;
  EXPECT_NEAR(StepModel(profile, {}).predict({.data_ms_saved = 20}), 3, 0.05);
  EXPECT_NEAR(StepModel(profile, {}).predict({}), 20, 0.2);
}

// The host waits 22 of 26 ms for a sample, but the GPU computes 25 ms for a step: a second thread brings nothing.
TEST(StepModel, SamplesAreNotChargedWithTheTimeInWhichAGpuComputes) {
  StepRecord record = bound_by_samples().record;
  record.on_gpu = true;
  record.micro_batch = 1;
  record.sums.sample_ms.assign(kSteps, 22);
  record.sums.steps.assign(kSteps, StageTable{{"data_wait", {1, 22, 0}}, {"forward", {1, 4, 4}}});
  record.wall_ms = 26 * kSteps;
  const auto with_gpu_ms = [&](double ms) {
    StepRecord copy = record;
    copy.alone_ms = ms;
    return conclude(std::move(copy), {});
  };
  const Profile computes = with_gpu_ms(25);
  EXPECT_NEAR(computes.step_ms, 26, 1e-9);
  EXPECT_NEAR(computes.data_wait_ms, 1, 1e-9);
  EXPECT_NEAR(StepModel(computes, {}).predict({.workers = 2}), 25, 1.1);
  EXPECT_EQ(computes.bottleneck.name, "gpu_compute");
  const Profile waits = with_gpu_ms(3);
  EXPECT_NEAR(waits.data_wait_ms, 22, 1e-9);
  EXPECT_LT(StepModel(waits, {}).predict({.workers = 2}), 16);
}

// Every fifth sample takes long. The host waits for it, but the GPU has work meanwhile: the step took 14 ms where the
// queue expects more, and batches ahead cannot make it shorter than what the GPU computes.
TEST(StepModel, BatchesAheadDoNotShortenTheStepItself) {
  StepRecord record = bound_by_samples().record;
  record.on_gpu = true;
  record.micro_batch = 1;
  record.sums.sample_ms.assign(kSteps, 1);
  for (size_t i = 0; i < record.sums.sample_ms.size(); i += 5) record.sums.sample_ms[i] = 60;
  record.sums.steps.assign(kSteps, StageTable{{"data_wait", {1, 6, 0}}, {"forward", {1, 8, 8}}});
  record.wall_ms = 14 * kSteps;
  record.alone_ms = 13.5;
  const StepModel model(conclude(record, {}), {});
  EXPECT_NEAR(model.predict({}), 14, 1e-9);
  EXPECT_NEAR(model.predict({.prefetch = 16}), 13.5, 0.1);
  EXPECT_NEAR(model.predict({.data_ms_saved = 100}), 13.5, 0.1);
}

// A host that runs ahead of its GPU waits now here, now there: every third launch blocks until the GPU has caught up.
TEST(StepModel, AStepOnAGpuTakesItsShareOfTheWholeTime) {
  StepRecord record = bound_by_samples().record;
  record.on_gpu = true;
  record.steps = 3;
  record.sums.steps.assign(3, StageTable{{"forward", {1, 1, 1}}});
  record.sums.steps[2]["forward"].self_ms = 121;
  EXPECT_NEAR(conclude(record, {}).step_ms, 41, 1e-9);
  record.on_gpu = false;  // one disturbed step
  EXPECT_NEAR(conclude(record, {}).step_ms, 1, 1e-9);
}

TEST(StepModel, CpusThatOthersUseAreNotIdle) {
  Profile profile = bound_by_samples();
  profile.record.wall_ms = 20 * kSteps;
  EXPECT_NEAR(idle_cpus(profile), 1 - (20 + 2) / 40.0, 1e-6);
  profile.record.others_cpus = 0.5;
  EXPECT_NEAR(idle_cpus(profile), 1 - (20 + 2) / 40.0 - 0.25, 1e-6);
}

TEST(StepModel, ThreadsThatWaitForADiskNeedNoCpu) {
  Profile profile = bound_by_samples();
  profile.record.sums.storage_wait_ms = 20 * kSteps;
  profile.record.cpu_ms = 2 * kSteps;
  EXPECT_NEAR(StepModel(profile, {}).predict({.workers = 4}), 5, 0.2);
}

// 100 ms of forward pass on one of two CPUs.
Profile bound_by_its_network() {
  Profile profile = bound_by_samples();
  profile.record.sums.sample_ms.assign(2 * kSteps, 1);
  profile.record.sums.steps.assign(kSteps, StageTable{{"forward", {1, 100, 100}}});
  profile.record.cpu_ms = 102 * kSteps;
  profile.step_stages = {{"forward", 100}};
  profile.step_ms = profile.own_ms = 100;
  profile.data_wait_ms = 0;
  return profile;
}

TEST(Suggestions, MoreComputeThreadsTakeWhatTheirTrialTook) {
  Profile profile = bound_by_its_network();
  profile.record.other_threads = {.threads = 2, .own_ms = 60, .slow_ms = 63, .handover_ns = 60};
  const std::vector<Suggestion> suggestions = suggest_changes(profile, {});
  ASSERT_EQ(suggestions.size(), 1u);
  EXPECT_EQ(suggestions[0].changes, std::vector<std::string>{"system.compute_threads=2"});
  EXPECT_NEAR(suggestions[0].predicted_step_ms, 60, 0.5);
}

TEST(Suggestions, ThreadsThatAreFasterOnlyNowAndThenAreNotSuggested) {
  Profile profile = bound_by_its_network();
  profile.record.other_threads = {.threads = 2, .own_ms = 60, .slow_ms = 110, .handover_ns = 340};
  EXPECT_TRUE(suggest_changes(profile, {}).empty());
}

Options with_topology(int64_t every) {
  Options options;
  options.loss.terms.resize(2);
  options.loss.terms[0].name = "bce";
  options.loss.terms[1].name = "topology";
  options.loss.terms[1].every = every;
  return options;
}

TEST(Suggestions, ARareTermIsToComeMoreRarelyThanItDoes) {
  Profile profile = bound_by_its_network();
  profile.step_stages = {{"forward", 20}, {"loss.topology", 80}};
  const auto suggested = [&](int64_t every) {
    const std::vector<Suggestion> suggestions = suggest_changes(profile, with_topology(every));
    return suggestions.empty() ? "" : suggestions[0].changes.at(0);
  };
  EXPECT_THAT(suggested(3), HasSubstr("every: 12"));
  EXPECT_THAT(suggested(0), HasSubstr("every: 64")) << "without `every` it comes every 16 steps";
}

TEST(StepModel, MeasuredAreWholeRoundsOfTheQueueAndOfRareTerms) {
  const auto counts = [](Options options, int64_t prefetch) {
    options.data.prefetch_factor = prefetch;
    std::vector<int64_t> found;
    for (int64_t steps = 1; steps <= 48; ++steps)
      if (whole_rounds(options, steps)) found.push_back(steps);
    return found;
  };
  EXPECT_THAT(counts({}, 10), ElementsAre(12, 24, 36, 48));
  EXPECT_THAT(counts(with_topology(0), 2), ElementsAre(16, 32, 48));
  EXPECT_THAT(counts(with_topology(0), 3), ElementsAre(16, 32, 48)) << "three rounds of the queue and a step";
  EXPECT_THAT(counts(with_topology(2), 3), ElementsAre(10, 20, 30, 40));
}

TEST(Handover, TakesTwoCpusLongerThanLightAndLessThanASleep) {
  std::optional<double> ns;
  for (int attempt = 0; attempt < 20 && !ns; ++attempt) ns = handover_ns();  // others may have one of the CPUs
  if (!ns) GTEST_SKIP() << "no two CPUs at once";
  EXPECT_GT(*ns, 1);
  EXPECT_LT(*ns, 1e5);
}

TEST(Bottleneck, OnAGpuIsWhatWouldTakeLongerAtItsOwnRates) {
  Profile profile;
  profile.step_ms = profile.own_ms = 10;
  profile.record.on_gpu = true;
  profile.step_stages = {{"forward", 4}, {"backward", 6}};
  StepDetails& details = profile.record.details;
  EXPECT_EQ(find_bottleneck(profile, {}).name, "gpu_compute");  // nothing is known of the GPU
  details.ceilings = {.flops = 800e12, .bytes_per_s = 4e12};
  details.work = {.flops = 4e12, .bytes = 8e9};  // 5 ms and 2 ms
  EXPECT_EQ(find_bottleneck(profile, {}).name, "gpu_compute");
  details.work.bytes = 24e9;
  EXPECT_EQ(find_bottleneck(profile, {}).name, "gpu_bandwidth");
}

// Four steps on a GPU that computes for 11.5 ms a step, the last of them with a term whose host span is given: the host
// runs ahead, and waits for all four of them within it.
StepRecord with_rare_term(const std::string& name, double span_ms) {
  StepRecord record;
  record.on_gpu = true;
  record.gpu_busy = 0.81;
  record.steps = 4;
  record.data_threads = 14;
  record.compute_threads = 2;
  record.cpus = 16;
  record.sums.steps.assign(4, StageTable{{"forward", {1, 0.04, 0.04}},
                                         {"loss", {1, 0.35, 0.35}},
                                         {"backward", {1, 0.04, 0.04}},
                                         {"optimizer", {1, 0.38, 0.38}}});
  record.sums.steps[3][name] = {1, span_ms, span_ms};  // a host that spins while it waits uses its CPU
  record.sums.steps[3]["sync"] = {1, 4.28, 4.28};
  record.wall_ms = 4 * (0.81 + 1.07) + span_ms;
  record.cpu_ms = record.wall_ms;
  return record;
}

Options with_dvh() {
  Options options;
  options.loss.terms.resize(2);
  options.loss.terms[0].name = "masked_mae";
  options.loss.terms[1].name = "dvh";
  options.loss.terms[1].every = 4;
  return options;
}

TEST(Bottleneck, ATermThatReadsBackIsNotChargedWithTheNetworkItWaitsFor) {
  StepRecord record = with_rare_term("loss.dvh", 42.24);
  record.gpu_terms = {{"loss.masked_mae", 0.05}, {"loss.dvh", 0.95}};
  const Profile profile = conclude(record, with_dvh());
  EXPECT_NEAR(profile.step_ms, 12.44, 1e-9);
  EXPECT_NEAR(stage_ms(profile.step_stages, "loss.dvh"), 0.95, 1e-9);
  EXPECT_NEAR(stage_ms(profile.step_stages, "sync"), 1.07 + 10.56 - 0.95, 1e-9);
  EXPECT_EQ(profile.bottleneck.name, "gpu_compute") << profile.bottleneck.evidence;
  EXPECT_THAT(profile.bottleneck.evidence, HasSubstr("11.1 ms of 12.4 ms"));
  ASSERT_EQ(profile.suggestions.size(), 1u);
  EXPECT_THAT(profile.suggestions[0].changes.at(0), HasSubstr("every: 16"));
  EXPECT_NEAR(profile.suggestions[0].predicted_step_ms, 11.7, 0.05);
}

// The GPU has nothing to do while the host seeks pairs: its clock runs on, beside 11.5 of 70 ms of its own work.
TEST(Bottleneck, ATermThatComputesOnTheHostIsNamedOnAGpuToo) {
  StepRecord record = with_rare_term("loss.topology", 4 * 68.0);
  record.gpu_busy = 0.17;
  record.gpu_terms = {{"loss.bce", 0.05}, {"loss.topology", 58}};
  const Profile profile = conclude(record, with_topology(4));
  EXPECT_NEAR(profile.step_ms, 0.81 + 1.07 + 68, 1e-9);
  EXPECT_EQ(profile.bottleneck.name, "loss") << profile.bottleneck.evidence;
  EXPECT_THAT(profile.bottleneck.evidence, HasSubstr("loss.topology alone 58.0 ms"));
  ASSERT_EQ(profile.suggestions.size(), 1u);
  EXPECT_NEAR(profile.suggestions[0].predicted_step_ms, profile.step_ms - 0.75 * 58, 0.5);
}

TEST(Bottleneck, ATermIsNeitherMoreThanItsSpanNorBelievedWithoutTheGpusClock) {
  StepRecord record = with_rare_term("loss.dvh", 42.24);
  EXPECT_EQ(conclude(record, with_dvh()).bottleneck.name, "gpu_compute");
  EXPECT_TRUE(conclude(record, with_dvh()).suggestions.empty());
  record.gpu_terms = {{"loss.dvh", 20}};
  EXPECT_NEAR(stage_ms(conclude(record, with_dvh()).step_stages, "loss.dvh"), 10.56, 1e-9);
  EXPECT_NEAR(conclude(record, with_dvh()).step_ms, 12.44, 1e-9);
  for (StageTable& step : record.sums.steps) step.erase("sync");
  record.gpu_terms = {{"loss.dvh", 0.95}};
  EXPECT_NEAR(stage_ms(conclude(record, with_dvh()).step_stages, "sync"), 10.56 - 0.95, 1e-9);
}

TEST(Bottleneck, OnACpuATermTakesWhatItsSpanSays) {
  StepRecord record = with_rare_term("loss.dvh", 42.24);
  record.on_gpu = false;
  record.gpu_busy.reset();
  const Profile profile = conclude(record, with_dvh());
  EXPECT_NEAR(stage_ms(profile.step_stages, "loss.dvh"), 10.56, 1e-9);
  EXPECT_EQ(profile.bottleneck.name, "loss");
}

TEST(TermLines, AreTheNanosecondsOfTheStepsBetweenTwoReadings) {
  const at::Tensor before = at::tensor({int64_t{5'000'000}, int64_t{1'000}});
  const at::Tensor after = at::tensor({int64_t{9'000'000}, int64_t{8'001'000}});
  const std::vector<StageLine> lines = term_lines({"masked_mae", "dvh"}, before, after, 4);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_NEAR(stage_ms(lines, "loss.masked_mae"), 1, 1e-12);
  EXPECT_NEAR(stage_ms(lines, "loss.dvh"), 2, 1e-12);
}

}  // namespace
}  // namespace vox
