#include "ops/gradient_places.h"

#include <mutex>
#include <set>

namespace vox::ops {
namespace {

// A backward pass runs on a thread of its own, while the one that owns the places waits for it.
std::mutex mutex;
std::set<std::map<const void*, GradientPlaces::Place>*>& offered() {
  static std::set<std::map<const void*, GradientPlaces::Place>*> all;
  return all;
}

const void* key_of(const at::Tensor& weight) {
  return weight.unsafeGetTensorImpl();
}

}  // namespace

GradientPlaces::~GradientPlaces() {
  withdraw();
}

void GradientPlaces::offer(const at::Tensor& weight, const at::Tensor& buffer, bool counts) {
  const std::lock_guard lock(mutex);
  places_[key_of(weight)] = {buffer, counts, false};
  offered().insert(&places_);
}

bool GradientPlaces::take(const at::Tensor& weight) {
  const std::lock_guard lock(mutex);
  const auto found = places_.find(key_of(weight));
  if (found == places_.end() || !found->second.written) return false;
  found->second.written = false;
  found->second.counts = true;
  return true;
}

void GradientPlaces::withdraw() {
  const std::lock_guard lock(mutex);
  offered().erase(&places_);
  places_.clear();
}

GradientPlaces::Place* GradientPlaces::of(const at::Tensor& weight) {
  const std::lock_guard lock(mutex);
  for (auto* const places : offered()) {
    const auto found = places->find(key_of(weight));
    if (found != places->end()) return &found->second;
  }
  return nullptr;
}

}  // namespace vox::ops
