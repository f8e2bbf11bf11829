#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "report/machine.h"
#include "report/run_folder.h"
#include "report/run_writer.h"
#include "report/test_folder.h"

namespace vox {
namespace {

using namespace std::chrono_literals;

TEST(RunFolder, TakesTheNextFreeNumber) {
  const TestFolder folder;
  EXPECT_EQ(RunFolder::create(folder.path(), "demo").name(), "demo-001");
  EXPECT_EQ(RunFolder::create(folder.path(), "demo").name(), "demo-002");
  make_folders(folder.path() / "demo-041");
  make_folders(folder.path() / "demo-other");
  EXPECT_EQ(RunFolder::create(folder.path(), "demo").name(), "demo-042");
  EXPECT_EQ(RunFolder::create(folder.path(), "scroll").name(), "scroll-001");
}

TEST(RunFolder, ManyAtOnceGetDifferentNumbers) {
  const TestFolder folder;
  std::vector<std::string> names(8);
  {
    std::vector<std::jthread> threads;
    for (std::string& name : names)
      threads.emplace_back([&] { name = RunFolder::create(folder.path(), "race").name(); });
  }
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
}

TEST(RunFolder, OpeningWhatIsNoRunSaysSo) {
  const TestFolder folder;
  EXPECT_THROW(RunFolder::open(folder.path()), Error);
  EXPECT_THROW(RunFolder::open(folder.path() / "missing"), Error);
}

TEST(RunFolder, AStatusWithValuesOfTheWrongTypeIsReadWithoutThem) {
  const TestFolder folder;
  const RunFolder run = RunFolder::create(folder.path(), "demo");
  write_file(run.status(),
             R"({"step": "7", "total_steps": null, "epoch": [], "total_epochs": 3, "phase": 5, "loss": 2})");
  const std::optional<RunStatus> status = read_status(run);
  ASSERT_TRUE(status);
  EXPECT_EQ(status->step, 0);
  EXPECT_EQ(status->total_epochs, 3);
  EXPECT_EQ(status->phase, "");
  EXPECT_EQ(status->loss, 2.0);
}

TEST(RunFolder, NestingWithoutEndIsReadOrRefused) {
  const TestFolder folder;
  const RunFolder run = RunFolder::create(folder.path(), "demo");
  const std::string deep = std::string(300000, '[') + std::string(300000, ']');
  write_file(run.status(), concat("{\"step\": 7, \"loss\": ", deep, "}"));
  EXPECT_EQ(read_status(run)->step, 7);
  write_file(run.record(), concat("{\"processes\": ", deep, ", \"libraries\": ", deep, "}"));
  EXPECT_THROW(read_record(run), Error);
}

TEST(RunRecord, AnUnknownStateIsRefusedWithTheFileThatHasIt) {
  const TestFolder folder;
  const RunFolder run = RunFolder::create(folder.path(), "demo");
  write_file(run.record(), R"({"state": "odd"})");
  try {
    read_record(run);
    FAIL() << "read";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(run.record().string()), std::string::npos) << error.what();
  }
}

TEST(RunRecord, IsReadBackAsWritten) {
  const TestFolder folder;
  const RunFolder run = RunFolder::create(folder.path(), "demo");
  RunRecord record{.commit = "abc", .machine = "m", .command = "voxloom train \"a b\"", .created = utc_now()};
  record.libraries = {{"torch", "2.13.0"}};
  record.state = RunState::kStopped;
  record.reason = "SIGINT";
  record.processes = {{.pid = 7,
                       .host = "h",
                       .started = "s",
                       .ended = "",
                       .start_ticks = 5,
                       .first_step = 1,
                       .last_step = 9,
                       .how = ""}};
  write_record(run, record);
  const RunRecord back = read_record(run);
  EXPECT_EQ(back.command, record.command);
  EXPECT_EQ(back.libraries, record.libraries);
  EXPECT_EQ(back.state, RunState::kStopped);
  ASSERT_EQ(back.processes.size(), 1u);
  EXPECT_EQ(back.processes[0].last_step, 9);
  EXPECT_EQ(back.processes[0].start_ticks, 5u);
  EXPECT_TRUE(back.processes[0].ended.empty());
}

TEST(RunWriter, RecordsTheStepsThatEachProcessExecuted) {
  const TestFolder folder;
  const RunFolder run = RunFolder::create(folder.path(), "demo");
  {
    RunWriter writer(run, {.command = "voxloom train"});
    EXPECT_TRUE(is_alive(read_record(run), read_status(run)));
    for (int64_t step = 1; step <= 5; ++step) writer.step_done(step);
    writer.checkpoint_written("checkpoints/last.safetensors", 5);
    writer.finish(RunState::kStopped, "SIGTERM");
  }
  EXPECT_FALSE(is_alive(read_record(run), read_status(run)));
  {
    RunWriter writer(run, {.command = "voxloom train --resume auto"});
    for (int64_t step = 6; step <= 8; ++step) writer.step_done(step);
    writer.warning("the loss was not finite");
    writer.finish(RunState::kFinished);
  }
  const RunRecord record = read_record(run);
  ASSERT_EQ(record.processes.size(), 2u);
  EXPECT_EQ(record.processes[0].first_step, 1);
  EXPECT_EQ(record.processes[0].last_step, 5);
  EXPECT_EQ(record.processes[0].how, "stopped: SIGTERM");
  EXPECT_EQ(record.processes[1].first_step, 6);
  EXPECT_EQ(record.processes[1].last_step, 8);
  EXPECT_EQ(record.state, RunState::kFinished);
  EXPECT_EQ(record.last_warning, "the loss was not finite");
  EXPECT_EQ(record.last_checkpoint, "last.safetensors at step 5");
  EXPECT_EQ(read_status(run)->last_warning, "the loss was not finite");
  EXPECT_NE(read_file(run.log()).find("Z warning: the loss was not finite\n"), std::string::npos);
}

TEST(RunWriter, ASecondWriterIsRefusedAndTheHolderNamed) {
  const TestFolder folder;
  const RunFolder run = RunFolder::create(folder.path(), "demo");
  const RunWriter first(run, {});
  try {
    const RunWriter second(run, {});
    FAIL() << "two writers of one run";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find(concat("process ", getpid(), " on ", host_name())), std::string::npos) << message;
  }
}

// In a process of its own.
template <class Last>
void kill_after_three_steps(const RunFolder& run, Last last_deed) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    RunWriter writer(run, {});
    for (int64_t step = 1; step <= 3; ++step) writer.step_done(step);
    last_deed(writer);
    _exit(9);
  }
  int result = 0;
  waitpid(child, &result, 0);
}

TEST(RunWriter, AProcessThatWasKilledIsRecordedByTheNext) {
  const TestFolder folder;
  const RunFolder run = RunFolder::create(folder.path(), "demo");
  kill_after_three_steps(run, [](RunWriter&) { std::this_thread::sleep_for(1500ms); });  // a heartbeat
  EXPECT_EQ(read_record(run).state, RunState::kRunning);
  EXPECT_FALSE(is_alive(read_record(run), read_status(run)));
  RunWriter writer(run, {});
  const RunRecord record = writer.record();
  ASSERT_EQ(record.processes.size(), 2u);
  EXPECT_EQ(record.processes[0].how, "killed");
  EXPECT_EQ(record.processes[0].first_step, 1);
  EXPECT_EQ(record.processes[0].last_step, 3);
  EXPECT_FALSE(record.processes[0].ended.empty());
}

TEST(RunWriter, AProcessKilledRightAfterItsCheckpointWasAsFarAsThat) {
  const TestFolder folder;
  const RunFolder run = RunFolder::create(folder.path(), "demo");
  kill_after_three_steps(run, [](RunWriter& writer) { writer.save_progress(); });  // no heartbeat
  const RunProcess killed = RunWriter(run, {}).record().processes[0];
  EXPECT_EQ(killed.first_step, 1);
  EXPECT_EQ(killed.last_step, 3);
}

TEST(RunWriter, SeesAStopRequestAndForgetsItAtTheNextStart) {
  const TestFolder folder;
  const RunFolder run = RunFolder::create(folder.path(), "demo");
  {
    RunWriter writer(run, {});
    EXPECT_EQ(pending_stop(run), StopRequest::kNone);
    request_stop(run, StopRequest::kAtEpoch);
    EXPECT_EQ(pending_stop(run), StopRequest::kAtEpoch);
    for (int i = 0; i < 50 && writer.stop_requested() == StopRequest::kNone; ++i) std::this_thread::sleep_for(100ms);
    EXPECT_EQ(writer.stop_requested(), StopRequest::kAtEpoch);
  }
  EXPECT_EQ(read_record(run).state, RunState::kFailed) << "finish() was never called";
  const RunWriter next(run, {});
  EXPECT_EQ(pending_stop(run), StopRequest::kNone);
}

TEST(Machine, TimesAreReadBack) {
  EXPECT_EQ(seconds_between("2026-02-28T23:59:50Z", "2026-03-01T00:00:10Z"), 20);
  EXPECT_TRUE(std::isnan(seconds_between("", utc_now())));
  EXPECT_GT(process_start_ticks(getpid()), 0u);
  EXPECT_GT(resident_gb(), 0.001);
}

}  // namespace
}  // namespace vox
