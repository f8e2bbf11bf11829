#include "train/kept_batches.h"

#include <torch/torch.h>

#include <algorithm>
#include <map>

#include "base/error.h"

namespace vox {
namespace {

// Whoever made a batch fills its memory again: the pipeline its slots, a source on a GPU its two sets of tensors.
DeviceBatch copy_of(const DeviceBatch& batch) {
  DeviceBatch kept = batch;
  kept.slot.reset();
  kept.resident = false;
  const auto copy = [](at::Tensor& tensor) {
    if (tensor.defined()) tensor = tensor.clone();
  };
  copy(kept.image);
  copy(kept.targets.label);
  copy(kept.targets.mask);
  if (kept.targets.image.defined()) kept.targets.image = kept.image;
  for (auto& [name, tensor] : kept.targets.extra) copy(tensor);
  return kept;
}

std::string state_name(const std::string& label, int64_t step, int64_t micro, size_t head, size_t part) {
  return concat("late.", label, ".", step, ".", micro, ".", head, ".", part);
}

std::vector<at::Tensor> parts_of(const std::map<std::string, at::Tensor>& state, const std::string& label, int64_t step,
                                 int64_t micro, size_t head) {
  std::vector<at::Tensor> parts;
  while (true) {
    const auto found = state.find(state_name(label, step, micro, head, parts.size()));
    if (found == state.end()) return parts;
    parts.push_back(found->second);
  }
}

constexpr size_t kMostHeads = 16;

}  // namespace

void KeptBatches::keep(int64_t step, const DeviceBatch& batch, std::vector<LateTerm> terms) {
  const auto micro = std::count_if(batches_.begin(), batches_.end(), [&](const auto& b) { return b.step == step; });
  batches_.push_back({step, micro, copy_of(batch), std::move(terms)});
}

void KeptBatches::forget_finished() {
  std::erase_if(batches_, [](const KeptBatch& kept) { return kept.terms.empty(); });
}

NamedTensors KeptBatches::state(const LossSet& loss) {
  const std::vector<std::string> labels = loss.term_names();
  NamedTensors tensors;
  for (KeptBatch& kept : batches_)
    for (LateTerm& late : kept.terms) {
      const std::vector<at::Tensor> parts = late.findings->state();
      for (size_t part = 0; part < parts.size(); ++part)
        tensors.emplace_back(state_name(labels[late.term], kept.step, kept.micro, late.head, part), parts[part]);
    }
  return tensors;
}

int64_t KeptBatches::restore(const NamedTensors& state, const Resumed& resumed) {
  const std::map<std::string, at::Tensor> by_name(state.begin(), state.end());
  const std::vector<std::string> labels = resumed.loss.term_names();
  int64_t lacking = 0;
  for (int64_t step = resumed.loss.first_unfinished(resumed.step); step < resumed.step; ++step)
    for (int64_t micro = 0; micro < resumed.micro_batches; ++micro) {
      const DeviceBatch batch = resumed.next();
      std::vector<LateTerm> terms;
      for (size_t t = 0; t < labels.size(); ++t) {
        const int64_t applied = step + resumed.loss.delay(t);
        if (!resumed.loss.due(t, applied, LossSet::Part::kLate) || applied < resumed.step) continue;
        const size_t before = terms.size();
        for (size_t head = 0; head < kMostHeads; ++head) {
          const std::vector<at::Tensor> parts = parts_of(by_name, labels[t], step, micro, head);
          if (!parts.empty()) terms.push_back(resumed.loss.restored(t, head, parts));
        }
        lacking += terms.size() == before ? 1 : 0;
      }
      if (!terms.empty()) batches_.push_back({step, micro, copy_of(batch), std::move(terms)});
    }
  return lacking;
}

}  // namespace vox
