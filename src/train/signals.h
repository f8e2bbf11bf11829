// What other processes ask of a run. SIGINT and SIGTERM: finish the step, save, leave; a second SIGINT leaves at once.
// SIGUSR1: save and go on. SIGHUP (a closed terminal) never stops a run.
#pragma once

namespace vox {

class SignalWatch {  // the former handlers come back with the end of the outermost
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  int stop_signal() const;   // 0: none came
  bool take_save_request();  // true once for each time SIGUSR1 came since
};

// Thrown where a signal ends what has nothing to save. No std::exception: nobody but `main` catches it, which ends with
// 128 + the signal.
struct Interrupted {
  int signal;
};

}  // namespace vox
