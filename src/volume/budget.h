// Bytes that may be resident at once. Whoever holds voxels holds a reservation for them; a reservation that does not
// fit waits until others are given back.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "base/error.h"

namespace vox {

// Too little memory for one volume or block: the recipe's fault, not a case's.
class NotEnoughMemory : public Error {
 public:
  using Error::Error;
};

// All of it is held by others, who may themselves wait: giving up what one holds and asking again lets them go on.
class MemoryInUse : public NotEnoughMemory {
 public:
  using NotEnoughMemory::NotEnoughMemory;
};

class MemoryBudget;

class Reservation {  // gives its bytes back when it goes
 public:
  Reservation() = default;
  Reservation(MemoryBudget* budget, int64_t bytes) : budget_(budget), bytes_(bytes) {}
  ~Reservation() { shrink(0); }
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;

  int64_t bytes() const { return bytes_; }
  void shrink(int64_t bytes);  // to no more than `bytes`

 private:
  MemoryBudget* budget_ = nullptr;
  int64_t bytes_ = 0;
};

// While it lives, reservations that this thread waits for end with an Error once `stopping` is true.
class StopsWaiting {
 public:
  explicit StopsWaiting(const std::atomic<bool>& stopping);
  ~StopsWaiting();
  StopsWaiting(const StopsWaiting&) = delete;
  StopsWaiting& operator=(const StopsWaiting&) = delete;
};

// While it lives, reservations of this thread end with MemoryInUse once nobody has given anything back for so long.
class GivesWay {
 public:
  explicit GivesWay(double seconds);
  ~GivesWay();
  GivesWay(const GivesWay&) = delete;
  GivesWay& operator=(const GivesWay&) = delete;
};

class MemoryBudget {
 public:
  // `free_idle` is asked for bytes that are resident without being in use; it says whether it freed any.
  MemoryBudget(int64_t limit, std::function<bool(int64_t bytes)> free_idle);

  // Waits until `bytes` fit. Error where they never can; `what` says what they are for ("case s12: labels/s12.tif").
  Reservation reserve(int64_t bytes, const std::string& what);
  // Takes `bytes` if that leaves `headroom` free, without freeing anything or waiting; else an empty reservation.
  Reservation try_reserve(int64_t bytes, int64_t headroom);

  int64_t limit() const { return limit_; }
  int64_t used() const;
  int64_t peak() const;
  double waited_s() const;  // summed over threads

 private:
  friend class Reservation;
  void give_back(int64_t bytes);
  bool take(int64_t bytes);
  double seconds_without_change() const;

  const int64_t limit_;
  const std::function<bool(int64_t)> free_idle_;
  mutable std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  int64_t used_ = 0, peak_ = 0;
  double waited_s_ = 0;
  std::chrono::steady_clock::time_point last_change_ = std::chrono::steady_clock::now();
};

}  // namespace vox
