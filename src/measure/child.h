// This program again, as a child whose time and memory are watched.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "measure/scratch_folder.h"
#include "train/signals.h"

namespace vox {

struct ChildLimits {
  double seconds = 600;
  int64_t resident_bytes = 0;  // 0: no limit
};

enum class ChildEnd { kDone, kFailed, kTooSlow, kOutOfMemory };

struct ChildResult {
  ChildEnd end = ChildEnd::kDone;
  int status = 0;      // as the shell gives it
  std::string output;  // standard output
  std::string said;    // the last line of standard error
  double seconds = 0;
  int64_t peak_bytes = 0;
};

class Child {  // ended with its owner, at the latest; a signal to this process is Interrupted where it waits
 public:
  explicit Child(const std::vector<std::string>& arguments);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void write_line(const std::string& line);
  // The next line of its standard output. Error where it ends or `seconds` pass before.
  std::string read_line(double seconds);
  ChildResult finish(const ChildLimits& limits);  // reads to its end

 private:
  bool pump(double seconds);  // moves what is there into the texts; false once both streams have ended
  void close_input();
  int64_t resident_bytes() const;

  SignalWatch signals_;
  ScratchFolder scratch_{"child"};
  pid_t pid_ = -1;
  int in_ = -1, out_ = -1, err_ = -1;
  std::string output_, errors_;
};

// What a child is told of the device. A GPU that --device numbered is the only one that this process sees, and that its
// children, who inherit its environment, see: to them it is "cuda".
std::vector<std::string> device_words(const std::string& device);

ChildResult run_child(const std::vector<std::string>& arguments, const ChildLimits& limits);

}  // namespace vox
