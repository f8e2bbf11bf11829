#include "measure/handover.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>

#include "base/span.h"

namespace vox {
namespace {

constexpr int64_t kRounds = 100;  // of a game
constexpr int kGames = 10;        // the quickest counts: no other thread came between
constexpr double kPatienceSeconds = 0.05;
constexpr int64_t kSpinsBetweenLooks = 1000;  // at the clock

struct Game {
  alignas(64) std::atomic<int64_t> ball = 0;
  alignas(64) Clock::time_point start = Clock::now();
};

// Throws the ball back whenever it shows this player's next number; false if it did not come.
bool play(Game& game, int64_t mine) {
  for (int64_t round = 0; round < kRounds; ++round, mine += 2) {
    for (int64_t spins = 1; game.ball.load(std::memory_order_acquire) != mine; ++spins)
      if (spins % kSpinsBetweenLooks == 0 && seconds_since(game.start) > kPatienceSeconds) return false;
    game.ball.store(mine + 1, std::memory_order_release);
  }
  return true;
}

bool move_to(int cpu) {
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(static_cast<size_t>(cpu), &only);
  return sched_setaffinity(0, sizeof(only), &only) == 0;
}

}  // namespace

std::optional<double> handover_ns() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0 || CPU_COUNT(&allowed) < 2) return std::nullopt;
  int first = 0, last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(static_cast<size_t>(first), &allowed)) ++first;
  while (!CPU_ISSET(static_cast<size_t>(last), &allowed)) --last;
  Game game;
  std::optional<double> best;
  std::thread returns([&] {
    bool plays = move_to(last);
    for (int64_t i = 0; i <= kGames && plays; ++i) plays = play(game, 2 * kRounds * i + 1);
  });
  std::thread serves([&] {
    if (!move_to(first) || !play(game, 0)) return;  // in the first game they meet
    for (int64_t i = 1; i <= kGames; ++i) {
      const auto start = Clock::now();
      if (!play(game, 2 * kRounds * i)) return;
      const double ns = 1e9 * seconds_since(start) / static_cast<double>(kRounds);
      best = std::min(best.value_or(ns), ns);
    }
  });
  serves.join();
  returns.join();
  return best;
}

}  // namespace vox
