#include "train/checkpoint_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "train/resume.h"
#include "train/signals.h"

namespace vox {
namespace {

class Folder : public testing::Test {
 protected:
  Folder() : path_(fs::temp_directory_path() / concat("voxloom-checkpoints-", getpid())) { fs::remove_all(path_); }
  ~Folder() override { fs::remove_all(path_); }

  void write(int64_t step, const CheckpointLinks& links = {}) {
    const std::vector<float> values(100, static_cast<float>(step));
    CheckpointFolder(path_).write({{"step", std::to_string(step)}},
                                  {{"model.weight", "F32", {10, 10}, std::as_bytes(std::span(values))}}, links);
  }
  void flip(const std::string& name, int64_t place) {
    std::fstream file(path_ / name, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(place);
    const char byte = static_cast<char>(file.get() ^ 16);
    file.seekp(place);
    file.put(byte);
  }
  fs::path path_;
};

TEST_F(Folder, TheOneBeforeIsKeptUntilTheNextIsSafe) {
  write(10);
  EXPECT_FALSE(fs::exists(path_ / "previous.safetensors"));
  write(20);
  EXPECT_EQ(read_checkpoint_metadata(path_ / "previous.safetensors").at("step"), "10");
  EXPECT_EQ(read_checkpoint_metadata(path_ / "last.safetensors").at("step"), "20");
}

TEST_F(Folder, KeepsAsManyEpochsAsAskedAndTheBest) {
  for (int64_t epoch = 1; epoch <= 12; ++epoch) write(epoch, {.best = epoch == 3, .epoch = epoch, .keep_last = 2});
  EXPECT_FALSE(fs::exists(path_ / "epoch-0010.safetensors"));
  EXPECT_EQ(read_checkpoint_metadata(path_ / "epoch-0011.safetensors").at("step"), "11");
  EXPECT_EQ(read_checkpoint_metadata(path_ / "best.safetensors").at("step"), "3");
}

TEST_F(Folder, KeepsTheEpochsThatWereWrittenLastWhereTheyHaveBecomeLonger) {
  for (int64_t epoch = 8; epoch <= 10; ++epoch) write(epoch, {.best = false, .epoch = epoch, .keep_last = 3});
  write(12, {.best = false, .epoch = 3, .keep_last = 3});
  write(16, {.best = false, .epoch = 4, .keep_last = 3});
  EXPECT_EQ(read_checkpoint_metadata(path_ / "epoch-0003.safetensors").at("step"), "12");
  EXPECT_EQ(read_checkpoint_metadata(path_ / "epoch-0004.safetensors").at("step"), "16");
  EXPECT_TRUE(fs::exists(path_ / "epoch-0010.safetensors"));
  EXPECT_FALSE(fs::exists(path_ / "epoch-0009.safetensors"));
}

TEST_F(Folder, EveryBitOfAFileIsCoveredAndTheFileNamed) {
  write(10);
  const fs::path file = path_ / "last.safetensors", damaged = path_ / "damaged.safetensors";
  const int64_t size = static_cast<int64_t>(fs::file_size(file));
  std::string whole(static_cast<size_t>(size), '\0');
  InputFile(file).read(0, std::as_writable_bytes(std::span(whole)));
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string changed = whole;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
    std::ofstream(damaged, std::ios::binary) << changed;
    try {
      read_checkpoint_file(damaged);
      ADD_FAILURE() << "bit " << bit << " went unnoticed";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(damaged.string()), std::string::npos) << bit << ": " << error.what();
      EXPECT_EQ(error.fault(), Fault::kInput) << bit;
    }
  }
}

TEST_F(Folder, TheNewestThatVerifiesIsTakenAndTheOthersNamed) {
  write(10);
  write(20);
  write(30, {.best = true, .epoch = {}, .keep_last = 3});
  flip("last.safetensors", static_cast<int64_t>(fs::file_size(path_ / "last.safetensors")) - 50);
  const auto found = newest_intact(CheckpointFolder(path_));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->file.metadata.at("step"), "20");
  ASSERT_EQ(found->damaged.size(), 1u);  // `best` is the same file and is not named again
  EXPECT_NE(found->damaged[0].find("last.safetensors"), std::string::npos);
}

TEST_F(Folder, LaterStepsMoveAsideUnderTheirNames) {
  for (int64_t epoch = 1; epoch <= 4; ++epoch) write(epoch, {.best = epoch == 3, .epoch = epoch, .keep_last = 0});
  const fs::path aside = path_ / "aside";
  EXPECT_TRUE(CheckpointFolder(path_).move_later(2, aside));
  for (const char* name : {"last", "previous", "best", "epoch-0003", "epoch-0004"}) {
    EXPECT_TRUE(fs::exists(aside / concat(name, ".safetensors"))) << name;
    EXPECT_FALSE(fs::exists(path_ / concat(name, ".safetensors"))) << name;
  }
  EXPECT_EQ(newest_intact(CheckpointFolder(path_))->file.metadata.at("step"), "2");
  EXPECT_FALSE(CheckpointFolder(path_).move_later(2, path_ / "nothing"));
  EXPECT_FALSE(fs::exists(path_ / "nothing"));
}

TEST_F(Folder, TheBestOfAKilledWriterIsNamedAgain) {
  write(1, {.best = true, .epoch = {}, .keep_last = 3});
  write(2);  // was to be the best
  const CheckpointFolder folder(path_);
  folder.mend_best(folder.last());
  EXPECT_TRUE(fs::equivalent(folder.best(), folder.last()));
  fs::remove(folder.best());
  folder.mend_best(folder.last());
  EXPECT_TRUE(fs::equivalent(folder.best(), folder.last()));
  const CheckpointFolder other(path_ / "of another run");
  make_folders(path_ / "of another run");
  other.mend_best(folder.last());
  EXPECT_FALSE(fs::exists(other.best()));
}

TEST_F(Folder, ABestOfALaterStepIsReplacedOnlyWhereItIsDamaged) {
  write(1, {.best = false, .epoch = 1, .keep_last = 3});
  write(2, {.best = true, .epoch = {}, .keep_last = 3});
  const CheckpointFolder folder(path_);
  folder.mend_best(path_ / "epoch-0001.safetensors");
  EXPECT_EQ(read_checkpoint_metadata(folder.best()).at("step"), "2");
  flip("best.safetensors", static_cast<int64_t>(fs::file_size(folder.best())) - 50);
  folder.mend_best(path_ / "epoch-0001.safetensors");
  EXPECT_EQ(read_checkpoint_metadata(folder.best()).at("step"), "1");
}

// Three epochs of a step each; the first and the third were the best so far.
class RunThatGoesBack : public testing::Test {
 protected:
  RunThatGoesBack()
      : run_(RunFolder::create_at(fs::temp_directory_path() / concat("voxloom-goes-back-", getpid()))),
        folder_(run_.checkpoints()) {
    for (int64_t epoch = 1; epoch <= 3; ++epoch) write(epoch);
  }
  ~RunThatGoesBack() override { fs::remove_all(run_.path()); }

  static TrainState state_at(int64_t epoch) {
    TrainState state;
    state.step = epoch;
    state.steps_per_epoch = 1;
    state.best_step = epoch == 3 ? 3 : 1;
    state.best_score = epoch == 3 ? 0.7 : 0.1;
    return state;
  }
  void write(int64_t epoch) const {
    const std::vector<float> values(100, static_cast<float>(epoch));
    folder_.write(to_metadata(state_at(epoch), Options{}),
                  {{"model.weight", "F32", {10, 10}, std::as_bytes(std::span(values))}},
                  {.best = epoch != 2, .epoch = epoch, .keep_last = 0});
  }
  static std::string step_of(const fs::path& file) { return read_checkpoint_metadata(file).at("step"); }

  RunFolder run_;
  CheckpointFolder folder_;
  fs::path from_ = run_.checkpoints() / "epoch-0002.safetensors";
};

TEST_F(RunThatGoesBack, NamesTheBestOfItsStateAgain) {
  TrainState state = state_at(2);
  EXPECT_EQ(go_back_to(run_, state, from_).size(), 1u);
  EXPECT_EQ(step_of(run_.path() / "checkpoints-before-1" / "best.safetensors"), "3");
  EXPECT_EQ(step_of(folder_.best()), "1");
  EXPECT_EQ(state.best_score, 0.1);
  EXPECT_TRUE(go_back_to(run_, state, from_).empty());
}

TEST_F(RunThatGoesBack, ForgetsABestThatItHasNoFileOf) {
  fs::remove(run_.checkpoints() / "epoch-0001.safetensors");
  TrainState state = state_at(2);
  EXPECT_EQ(go_back_to(run_, state, from_).size(), 2u);
  EXPECT_FALSE(state.best_score);
  EXPECT_FALSE(fs::exists(folder_.best()));
}

TEST_F(RunThatGoesBack, TellsWhereTheFileLiesThatItGoesOnFrom) {
  TrainState state = state_at(3);
  go_back_to(run_, state, from_);
  EXPECT_EQ(from_, run_.checkpoints() / "epoch-0002.safetensors");
  from_ = folder_.best();
  state.best_score.reset();  // as where another measure judges
  go_back_to(run_, state, from_);
  EXPECT_EQ(from_, run_.path() / "checkpoints-before-1" / "best.safetensors");
  EXPECT_EQ(step_of(from_), "3");
}

TEST_F(RunThatGoesBack, TakesNoFileOfAnotherHistoryForItsBest) {
  TrainState state = state_at(3);
  state.best_score = 0.8;
  EXPECT_EQ(go_back_to(run_, state, from_).size(), 2u);
  EXPECT_EQ(step_of(run_.path() / "checkpoints-before-1" / "best.safetensors"), "3");
  EXPECT_FALSE(state.best_score);
}

TEST_F(Folder, LeftoversOfAKilledWriterGo) {
  write(1);
  write_file(path_ / ".last.safetensors.1.0.part", "half");
  write_file(path_ / ".last-before", "whole");
  CheckpointFolder(path_).remove_leftovers();
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(path_)) ++files;
  EXPECT_EQ(files, 1u);
}

TEST(BackgroundWriter, AFailureReachesWhoAsksNext) {
  BackgroundWriter writer;
  writer.submit([] { throw Error("no space left", Fault::kMachine); });
  while (writer.busy()) usleep(1000);
  EXPECT_THROW(writer.rethrow_failure(), Error);
  EXPECT_NO_THROW(writer.rethrow_failure());
  std::atomic<int> done{0};
  for (int i = 0; i < 5; ++i) writer.submit([&] { ++done; });
  writer.finish();
  EXPECT_EQ(done, 5);
}

TEST(SignalWatch, StopsSavesAndIgnores) {
  SignalWatch watch;
  EXPECT_EQ(watch.stop_signal(), 0);
  raise(SIGHUP);
  raise(SIGUSR1);
  EXPECT_TRUE(watch.take_save_request());
  EXPECT_FALSE(watch.take_save_request());
  EXPECT_EQ(watch.stop_signal(), 0);
  raise(SIGTERM);
  EXPECT_EQ(watch.stop_signal(), SIGTERM);
}

TEST(SignalWatchDeath, ASecondInterruptLeavesAtOnce) {
  EXPECT_EXIT(
      {
        const SignalWatch watch;
        raise(SIGINT);
        if (watch.stop_signal() != SIGINT) _exit(1);
        raise(SIGINT);
        _exit(2);
      },
      testing::ExitedWithCode(130), "");
}

}  // namespace
}  // namespace vox
