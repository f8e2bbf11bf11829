// Overlap scores of label volumes: Dice, intersection over union, precision, recall, each per class and in the mean
// over the classes that occur. Volumes are read slab by slab, so that memory does not grow with them.
#include <algorithm>
#include <mutex>
#include <set>

#include "base/buffer.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "metrics/confusion.h"
#include "metrics/metric.h"

namespace vox {
namespace {

constexpr int64_t kSlabVoxels = 4 << 20;
constexpr size_t kMostClasses = 256;  // a volume with more holds instances

void require_comparable(const VolumeSource& prediction, const VolumeSource& reference) {
  for (const VolumeSource* source : {&prediction, &reference}) {
    VOX_CHECK(source->info.channels == 1, source->name, ": has ", source->info.channels,
              " channels; expected one channel of labels.");
  }
  VOX_CHECK(prediction.info.extent == reference.info.extent, prediction.name, ": the prediction is ",
            prediction.info.extent, " but the reference ", reference.name, " is ", reference.info.extent,
            "; was one of them resampled or cropped?");
}

// Whole chunks of the file where it has any, so that none is decoded twice.
int64_t slab_height(const VolumeInfo& info) {
  const int64_t slice = std::max<int64_t>(info.extent.y * info.extent.x, 1);
  const int64_t chunk = std::max<int64_t>(info.chunk.z, 1);
  const int64_t wanted = std::max<int64_t>(kSlabVoxels / slice, 1);
  return std::max<int64_t>(wanted / chunk, 1) * chunk;
}

LabelVoxels read_slab(const VolumeSource& source, const Box3& box, Buffer& buffer) {
  buffer = Buffer(std::max<int64_t>(box.voxels() * size_of(source.info.dtype), 1));
  source.read(box, buffer.data());
  return {buffer.data(), source.info.dtype, source.info.scale, source.info.offset, source.name};
}

ConfusionCounts count_volume(const VolumeSource& prediction, const VolumeSource& reference,
                             const MetricOptions& options, ThreadPool& pool) {
  const Extent3 extent = reference.info.extent;
  const int64_t height = std::max(slab_height(prediction.info), slab_height(reference.info));
  std::mutex mutex;  // guards total
  ConfusionCounts total;
  pool.for_each((extent.z + height - 1) / height, [&](int64_t slab) {
    const Box3 box{{slab * height, 0, 0}, {std::min((slab + 1) * height, extent.z), extent.y, extent.x}};
    Buffer predicted, referred;
    const LabelVoxels p = read_slab(prediction, box, predicted), r = read_slab(reference, box, referred);
    ConfusionCounts part;
    count_confusion(part, p, r, box.voxels(), options.ignore_label);
    const std::lock_guard lock(mutex);
    total.merge(part);
  });
  return total;
}

std::string listed(const std::set<int64_t>& labels) {
  std::string text;
  for (const int64_t label : labels) text += concat(text.empty() ? "" : ", ", label);
  return text;
}

// A mask of 0 and 255 against one of 0 and 1 would score 0 without a word.
void require_shared_labels(const ConfusionCounts& counts, const VolumeSource& prediction,
                           const VolumeSource& reference) {
  VOX_CHECK(counts.classes.size() <= kMostClasses, reference.name, ": ", counts.classes.size(),
            " labels occur; more than ", kMostClasses,
            " are instances, not classes. See `voxloom evaluate --task instances`.");
  std::set<int64_t> predicted, referred;
  for (const auto& [label, of] : counts.classes) {
    if (of.tp + of.fp > 0) predicted.insert(label);
    if (of.tp + of.fn > 0) referred.insert(label);
  }
  if (predicted.empty() || referred.empty()) return;
  const bool shared =
      std::any_of(predicted.begin(), predicted.end(), [&](int64_t label) { return referred.count(label); });
  VOX_CHECK(shared, prediction.name, ": unknown labels: the prediction holds ", listed(predicted),
            " but the reference ", reference.name, " holds ", listed(referred),
            "; convert one of them to the labels of the other.");
}

template <class Counts>
std::map<std::string, double> values_of(const Counts& counts) {
  return {
      {"dice", counts.dice()}, {"iou", counts.iou()}, {"precision", counts.precision()}, {"recall", counts.recall()}};
}

Scores evaluate(const VolumeSource& prediction, const VolumeSource& reference, const MetricOptions& options,
                ThreadPool& pool) {
  require_comparable(prediction, reference);
  ConfusionCounts counts = count_volume(prediction, reference, options, pool);
  require_shared_labels(counts, prediction, reference);
  if (counts.classes.empty()) counts.classes[1];  // both empty: class 1, rightly absent
  Scores scores;
  scores.values = values_of(counts);
  for (const auto& [label, of] : counts.classes) scores.classes[std::to_string(label)] = values_of(of);
  return scores;
}

}  // namespace

MetricEntry segmentation_metric() {
  return {.name = "segmentation",
          .help = "overlap of label volumes, per class and in the mean",
          .scores = {{"dice", "2 TP / (2 TP + FP + FN); 1 where both are empty"},
                     {"iou", "TP / (TP + FP + FN), Jaccard's index; 1 where both are empty"},
                     {"precision", "TP / (TP + FP)"},
                     {"recall", "TP / (TP + FN)"}},
          .evaluate = evaluate,
          .mean = mean_of_cases};
}

}  // namespace vox
