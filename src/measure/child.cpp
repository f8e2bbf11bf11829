#include "measure/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>

#include "base/error.h"
#include "base/span.h"
#include "base/text.h"
#include "config/device_name.h"

namespace vox {
namespace {

constexpr int kMachineFault = 3;  // exit status of this program: disk full, out of memory

std::array<int, 2> open_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw Error("cannot make a pipe to a child process", Fault::kMachine);
  return ends;
}

std::string last_line_of(const std::string& text) {
  const std::vector<std::string> lines = split(trim(text), '\n');
  return lines.empty() ? "" : lines.back();
}

std::vector<std::string> environment_with(const std::string& variable) {
  std::vector<std::string> all{variable};
  const std::string name = variable.substr(0, variable.find('=') + 1);
  for (char** one = environ; *one != nullptr; ++one)
    if (!std::string(*one).starts_with(name)) all.emplace_back(*one);
  return all;
}

std::vector<char*> as_pointers(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

int shell_status(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

Child::Child(const std::vector<std::string>& arguments) {
  const auto in = open_pipe(), out = open_pipe(), err = open_pipe();
  std::vector<std::string> named{"voxloom"};
  named.insert(named.end(), arguments.begin(), arguments.end());
  const std::vector<std::string> variables = environment_with(concat(kScratchVariable, "=", scratch_.path().string()));
  const std::vector<char*> words = as_pointers(named), environment = as_pointers(variables);
  pid_ = fork();
  if (pid_ == 0) {  // between fork and exec only what is safe after one
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(in[0], 0);
    dup2(out[1], 1);
    dup2(err[1], 2);
    execve("/proc/self/exe", words.data(), environment.data());
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  close(err[1]);
  in_ = in[1], out_ = out[0], err_ = err[0];
  if (pid_ < 0) throw Error("cannot start a child process", Fault::kMachine);
}

Child::~Child() {
  close_input();
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  for (const int descriptor : {out_, err_})
    if (descriptor >= 0) close(descriptor);
}

void Child::close_input() {
  if (in_ >= 0) close(in_);
  in_ = -1;
}

void Child::write_line(const std::string& line) {
  const std::string text = line + '\n';
  const auto before = signal(SIGPIPE, SIG_IGN);  // a child that ended is noticed when it is read
  static_cast<void>(!::write(in_, text.data(), text.size()));
  signal(SIGPIPE, before);
}

bool Child::pump(double seconds) {
  if (const int signal = signals_.stop_signal(); signal != 0) throw Interrupted{signal};
  std::array<pollfd, 2> ends{{{out_, POLLIN, 0}, {err_, POLLIN, 0}}};
  if (poll(ends.data(), ends.size(), static_cast<int>(seconds * 1e3)) <= 0) return out_ >= 0 || err_ >= 0;
  std::array<char, 65536> bytes{};
  const auto take = [&](const pollfd& end, int& descriptor, std::string& text) {
    if (descriptor < 0 || end.revents == 0) return;
    const ssize_t got = ::read(descriptor, bytes.data(), bytes.size());
    if (got > 0) text.append(bytes.data(), static_cast<size_t>(got));
    if (got > 0 || (got < 0 && errno == EINTR)) return;
    close(descriptor);
    descriptor = -1;
  };
  take(ends[0], out_, output_);
  take(ends[1], err_, errors_);
  return out_ >= 0 || err_ >= 0;
}

std::string Child::read_line(double seconds) {
  const auto start = Clock::now();
  while (true) {
    const size_t end = output_.find('\n');
    if (end != std::string::npos) {
      const std::string line = output_.substr(0, end);
      output_.erase(0, end + 1);
      return line;
    }
    VOX_CHECK(out_ >= 0, "a measurement in a child process failed: ", last_line_of(errors_));
    VOX_CHECK(seconds_since(start) < seconds, "a measurement in a child process took longer than ", seconds, " s");
    pump(0.5);
  }
}

int64_t Child::resident_bytes() const {
  std::ifstream file(concat("/proc/", pid_, "/statm"));
  int64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

ChildResult Child::finish(const ChildLimits& limits) {
  close_input();
  ChildResult result;
  const auto start = Clock::now();
  bool open = true;
  while (open) {
    open = pump(0.05);
    result.peak_bytes = std::max(result.peak_bytes, resident_bytes());
    const bool late = seconds_since(start) > limits.seconds;
    const bool large = limits.resident_bytes > 0 && result.peak_bytes > limits.resident_bytes;
    if (!late && !large) continue;
    result.end = large ? ChildEnd::kOutOfMemory : ChildEnd::kTooSlow;
    kill(pid_, SIGKILL);
    break;
  }
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) continue;
  pid_ = -1;
  result.seconds = seconds_since(start);
  result.status = shell_status(status);
  result.output = output_;
  result.said = last_line_of(errors_);
  if (result.end != ChildEnd::kDone || result.status == 0) return result;
  const bool memory = result.status == 128 + SIGKILL ||  // the kernel's own limit
                      (result.status == kMachineFault && lower(result.said).find("memory") != std::string::npos) ||
                      lower(result.said).find("out of memory") != std::string::npos ||
                      lower(result.said).find("does not fit into the memory") != std::string::npos;
  result.end = memory ? ChildEnd::kOutOfMemory : ChildEnd::kFailed;
  return result;
}

std::vector<std::string> device_words(const std::string& device) {
  if (device.empty()) return {};
  return {"--device", sees_one_gpu() ? "cuda" : device};
}

ChildResult run_child(const std::vector<std::string>& arguments, const ChildLimits& limits) {
  return Child(arguments).finish(limits);
}

}  // namespace vox
