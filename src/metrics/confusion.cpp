#include "metrics/confusion.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace vox {
namespace {

constexpr int64_t kLabels = 65536;  // labels lie below this; more is no class list

double ratio(int64_t numerator, int64_t denominator, bool both_empty) {
  if (both_empty) return 1;
  return denominator == 0 ? 0 : static_cast<double>(numerator) / static_cast<double>(denominator);
}

template <class Score>
double mean_over_classes(const std::map<int64_t, ClassCounts>& classes, Score score) {
  if (classes.empty()) return 1;
  double sum = 0;
  for (const auto& [label, counts] : classes) sum += (counts.*score)();
  return sum / static_cast<double>(classes.size());
}

[[noreturn]] void refuse_value(double value, const std::string& where) {
  const bool fraction = value != std::floor(value);
  throw Error(concat(where, ": holds the value ", shortest(value),
                     ", which is no label; expected whole numbers from 0 to ", kLabels - 1,
                     fraction ? ". Is this a map of probabilities? Predict without --probabilities."
                              : ". Are these instances? See `voxloom evaluate --task instances`."));
}

// Labels of one row of voxels, whatever they are stored as.
template <class T>
void labels_of(int32_t* out, const T* in, int64_t count, const LabelVoxels& volume) {
  const bool plain = volume.scale == 1 && volume.offset == 0;
  for (int64_t i = 0; i < count; ++i) {
    if constexpr (sizeof(T) == 1 && std::is_unsigned_v<T>) {
      if (plain) {
        out[i] = in[i];
        continue;
      }
    }
    const double value = static_cast<double>(in[i]) * volume.scale + volume.offset;
    if (!(value >= 0 && value < kLabels) || value != std::floor(value)) refuse_value(value, volume.where);
    out[i] = static_cast<int32_t>(value);
  }
}

void read_labels(std::vector<int32_t>& out, const LabelVoxels& volume, int64_t first, int64_t count) {
  with_type(volume.dtype, [&](auto type) {
    using T = decltype(type);
    labels_of(out.data(), static_cast<const T*>(volume.data) + first, count, volume);
  });
}

// How often each label was found: in both, in the prediction, in the reference. Grows with the largest label seen.
struct Tally {
  std::vector<int64_t> both, predicted, referred;

  void grow(int32_t label) {
    if (static_cast<size_t>(label) < both.size()) return;
    const size_t size = std::max<size_t>(256, static_cast<size_t>(label) + 1);
    both.resize(size);
    predicted.resize(size);
    referred.resize(size);
  }
  void add(int32_t prediction, int32_t reference) {
    grow(std::max(prediction, reference));
    ++predicted[static_cast<size_t>(prediction)];
    ++referred[static_cast<size_t>(reference)];
    if (prediction == reference) ++both[static_cast<size_t>(prediction)];
  }
};

void refuse_ignored_prediction(const LabelVoxels& prediction, int64_t label) {
  throw Error(concat(prediction.where, ": predicts the ignore label ", label,
                     " where the reference has a label; a prediction may hold it only where it is ignored."));
}

}  // namespace

double ClassCounts::dice() const {
  return ratio(2 * tp, 2 * tp + fp + fn, tp + fp + fn == 0);
}
double ClassCounts::iou() const {
  return ratio(tp, tp + fp + fn, tp + fp + fn == 0);
}
double ClassCounts::precision() const {
  return ratio(tp, tp + fp, tp + fp + fn == 0);
}
double ClassCounts::recall() const {
  return ratio(tp, tp + fn, tp + fp + fn == 0);
}

void ConfusionCounts::merge(const ConfusionCounts& other) {
  for (const auto& [label, counts] : other.classes) {
    ClassCounts& mine = classes[label];
    mine.tp += counts.tp;
    mine.fp += counts.fp;
    mine.fn += counts.fn;
  }
}

ClassCounts ConfusionCounts::of(int64_t label) const {
  const auto found = classes.find(label);
  return found == classes.end() ? ClassCounts{} : found->second;
}

double ConfusionCounts::dice() const {
  return mean_over_classes(classes, &ClassCounts::dice);
}
double ConfusionCounts::iou() const {
  return mean_over_classes(classes, &ClassCounts::iou);
}
double ConfusionCounts::precision() const {
  return mean_over_classes(classes, &ClassCounts::precision);
}
double ConfusionCounts::recall() const {
  return mean_over_classes(classes, &ClassCounts::recall);
}

void count_confusion(ConfusionCounts& counts, const LabelVoxels& prediction, const LabelVoxels& reference,
                     int64_t count, std::optional<int64_t> ignore_label) {
  constexpr int64_t kPiece = 4096;
  std::vector<int32_t> predicted(kPiece), referred(kPiece);
  const int64_t ignored = ignore_label.value_or(-1);
  Tally tally;
  for (int64_t first = 0; first < count; first += kPiece) {
    const int64_t piece = std::min(kPiece, count - first);
    read_labels(predicted, prediction, first, piece);
    read_labels(referred, reference, first, piece);
    for (int64_t i = 0; i < piece; ++i) {
      const int32_t p = predicted[static_cast<size_t>(i)], r = referred[static_cast<size_t>(i)];
      if (r == ignored) continue;
      if (p == ignored && p != 0) refuse_ignored_prediction(prediction, ignored);  // background is a miss
      tally.add(p, r);
    }
  }
  for (size_t label = 1; label < tally.both.size(); ++label) {
    if (tally.predicted[label] == 0 && tally.referred[label] == 0) continue;
    ClassCounts& mine = counts.classes[static_cast<int64_t>(label)];
    mine.tp += tally.both[label];
    mine.fp += tally.predicted[label] - tally.both[label];
    mine.fn += tally.referred[label] - tally.both[label];
  }
}

}  // namespace vox
