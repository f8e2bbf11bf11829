// Whole volumes by number, least recently used first to go. A volume in use is never dropped (that would free nothing),
// and one that is being loaded is loaded once, however many threads ask for it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>

#include "base/volume.h"
#include "volume/budget.h"

namespace vox {

struct HeldVolume {
  Volume volume;
  Reservation bytes;  // of the voxels
};
using SharedVolume = std::shared_ptr<const HeldVolume>;

class VolumeCache {
 public:
  SharedVolume find(int64_t key);  // null where absent
  // The volume, loaded by `load` where absent; others who ask meanwhile wait. An exception of `load` reaches the
  // caller that loaded, and the next one tries again.
  SharedVolume get(int64_t key, const std::function<SharedVolume()>& load);
  bool free_idle(int64_t bytes);  // drops volumes not in use until that many bytes are free; false: there was none
  void erase(int64_t key);

  int64_t hits() const;
  int64_t misses() const;
  double waited_s() const;  // for loads of other threads, summed

 private:
  struct Entry {
    SharedVolume volume;  // null while loading
    std::list<int64_t>::iterator place;
  };
  SharedVolume touch(Entry& entry);

  mutable std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  std::map<int64_t, Entry> entries_;
  std::list<int64_t> order_;  // least recently used first
  int64_t hits_ = 0, misses_ = 0;
  double waited_s_ = 0;
};

}  // namespace vox
