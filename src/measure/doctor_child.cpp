#include "measure/doctor_child.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <thread>

#include "base/error.h"
#include "base/span.h"

extern char** environ;

namespace vox {
namespace {

ChildOutcome outcome_of(int status) {
  if (WIFSIGNALED(status)) return {.signal = WTERMSIG(status), .status = 0};
  return {.signal = 0, .status = WEXITSTATUS(status)};
}

}  // namespace

ChildOutcome run_this_program(const std::vector<std::string>& arguments, double seconds) {
  std::vector<std::string> words{"voxloom"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t silent;
  posix_spawn_file_actions_init(&silent);
  posix_spawn_file_actions_addopen(&silent, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&silent, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int error = posix_spawn(&child, "/proc/self/exe", &silent, nullptr, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&silent);
  if (error != 0) throw_system_error("start", "/proc/self/exe", error);
  const Clock::time_point start = Clock::now();
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (seconds_since(start) > seconds) kill(child, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return outcome_of(status);
}

}  // namespace vox
