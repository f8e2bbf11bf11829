// What other processes ask of a run. SIGINT and SIGTERM: finish the step, save, leave; a second SIGINT leaves at once.
// SIGUSR1: save and go on. SIGHUP (a closed terminal) never stops a run.
#pragma once

namespace vox {

class SignalWatch {  // one at a time; the former handlers come back with its end
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  int stop_signal() const;   // 0: none came
  bool take_save_request();  // true once for each time SIGUSR1 came since
};

}  // namespace vox
