#include "train/signals.h"

#include <unistd.h>
#include <csignal>

#include <array>

namespace vox {
namespace {

volatile std::sig_atomic_t asked_to_stop = 0;
volatile std::sig_atomic_t asked_to_save = 0;

void on_stop(int number) {
  if (number == SIGINT && asked_to_stop == SIGINT) _exit(128 + SIGINT);  // asked twice: no more patience
  asked_to_stop = number;
}
void on_save(int) {
  asked_to_save = 1;
}

struct Watched {
  int number;
  void (*handler)(int);
};
const std::array<Watched, 4> kWatched{{{SIGINT, on_stop}, {SIGTERM, on_stop}, {SIGUSR1, on_save}, {SIGHUP, SIG_IGN}}};
std::array<struct sigaction, 4> former;
int watches = 0;

}  // namespace

SignalWatch::SignalWatch() {
  if (watches++ > 0) return;
  asked_to_stop = 0;
  asked_to_save = 0;
  for (size_t i = 0; i < kWatched.size(); ++i) {
    struct sigaction action {};
    action.sa_handler = kWatched[i].handler;
    action.sa_flags = SA_RESTART;  // reads and writes under way go on
    sigemptyset(&action.sa_mask);
    sigaction(kWatched[i].number, &action, &former[i]);
  }
}

SignalWatch::~SignalWatch() {
  if (--watches > 0) return;
  for (size_t i = 0; i < kWatched.size(); ++i) sigaction(kWatched[i].number, &former[i], nullptr);
}

int SignalWatch::stop_signal() const {
  return asked_to_stop;
}
bool SignalWatch::take_save_request() {
  const bool asked = asked_to_save != 0;
  asked_to_save = 0;
  return asked;
}

}  // namespace vox
