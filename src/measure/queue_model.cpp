#include "measure/queue_model.h"

#include <algorithm>
#include <functional>
#include <queue>

#include "base/random.h"

namespace vox {

double predicted_step_ms(const QueueModel& model) {
  if (model.sample_ms.empty()) return model.step_ms;
  constexpr int64_t kWarmUp = 50, kSteps = 400;
  const int64_t batches = (kWarmUp + kSteps) * model.batches_per_step;
  const double batch_ms = model.step_ms / static_cast<double>(model.batches_per_step);
  Random random(0, 0, kSynthStream);
  std::priority_queue<double, std::vector<double>, std::greater<>> free_at;  // of each worker
  for (int i = 0; i < std::max(1, model.workers); ++i) free_at.push(0);
  std::vector<double> released(static_cast<size_t>(batches), 0);
  double now = 0, start = 0;  // of the consumer
  for (int64_t batch = 0; batch < batches; ++batch) {
    const int64_t before = batch - model.batches_in_flight;
    const double slot_free = before < 0 ? 0 : released[static_cast<size_t>(before)];
    double ready = slot_free;
    for (int64_t sample = 0; sample < model.samples_per_batch; ++sample) {
      const auto pick = static_cast<size_t>(random.below(static_cast<int64_t>(model.sample_ms.size())));
      const double done = std::max(free_at.top(), slot_free) + model.sample_ms[pick];
      free_at.pop();
      free_at.push(done);
      ready = std::max(ready, done);
    }
    now = std::max(now, ready) + batch_ms;
    released[static_cast<size_t>(batch)] = now;
    if (batch + 1 == kWarmUp * model.batches_per_step) start = now;
  }
  return (now - start) / static_cast<double>(kSteps);
}

}  // namespace vox
