// Scores of label volumes, each per class and in the mean over the classes that occur: overlap (Dice, intersection over
// union, precision, recall), counted slab by slab, and distances of surfaces (HD95, average surface distance), for
// which the labels are held in memory, two bytes a voxel, and one class at a time is cut out at its bounding box.
#include <algorithm>
#include <limits>
#include <mutex>
#include <set>

#include "base/buffer.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "metrics/confusion.h"
#include "metrics/label_volume.h"
#include "metrics/metric.h"
#include "metrics/surface_distance.h"

namespace vox {
namespace {

constexpr size_t kMostClasses = 256;  // a volume with more holds instances

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

struct LabelPair {
  std::vector<uint16_t> prediction, reference;
};

LabelPair read_pair(const VolumeSource& prediction, const VolumeSource& reference, const MetricOptions& options,
                    ThreadPool& pool) {
  LabelPair labels{read_class_labels(prediction, pool), read_class_labels(reference, pool)};
  for (size_t i = 0; options.ignore_label && i < labels.reference.size(); ++i)
    if (labels.reference[i] == *options.ignore_label) labels.prediction[i] = labels.reference[i] = 0;
  return labels;
}

using Boxes = std::vector<Box3>;  // of each label: where either volume has it

Boxes boxes_of(const LabelPair& labels, const Extent3& extent) {
  Boxes boxes(std::numeric_limits<uint16_t>::max() + 1, Box3{extent, {0, 0, 0}});
  size_t i = 0;
  for (int64_t z = 0; z < extent.z; ++z) {
    for (int64_t y = 0; y < extent.y; ++y) {
      for (int64_t x = 0; x < extent.x; ++x, ++i) {
        for (const uint16_t label : {labels.prediction[i], labels.reference[i]}) {
          if (label == 0) continue;
          Box3& box = boxes[label];
          box = {min(box.begin, {z, y, x}), max(box.end, {z + 1, y + 1, x + 1})};
        }
      }
    }
  }
  return boxes;
}

std::vector<uint8_t> cut_mask(const std::vector<uint16_t>& labels, const Extent3& extent, const Box3& box,
                              int64_t label) {
  std::vector<uint8_t> mask;
  mask.reserve(static_cast<size_t>(box.voxels()));
  for (int64_t z = box.begin.z; z < box.end.z; ++z)
    for (int64_t y = box.begin.y; y < box.end.y; ++y)
      for (int64_t x = box.begin.x; x < box.end.x; ++x)
        mask.push_back(labels[static_cast<size_t>((z * extent.y + y) * extent.x + x)] == label);
  return mask;
}

void add_distances(Scores& scores, const ConfusionCounts& counts, const LabelPair& labels, const VolumeInfo& info,
                   ThreadPool& pool) {
  const Spacing3 spacing = info.spacing.value_or(Spacing3{});
  const Boxes boxes = boxes_of(labels, info.extent);
  SurfaceDistances sum;
  for (const auto& [label, of] : counts.classes) {
    SurfaceDistances found;
    if (of.tp + of.fp == 0 || of.tp + of.fn == 0) {  // only one has it, or none
      const double far = of.fp + of.fn == 0 ? 0 : diagonal_mm(info.extent, spacing);
      found = {far, far};
    } else {
      const Box3& box = boxes[static_cast<size_t>(label)];
      const std::vector<uint8_t> p = cut_mask(labels.prediction, info.extent, box, label);
      const std::vector<uint8_t> r = cut_mask(labels.reference, info.extent, box, label);
      found = surface_distances(p.data(), r.data(), box.extent(), spacing, pool);
    }
    scores.classes[std::to_string(label)]["hd95"] = found.hd95;
    scores.classes[std::to_string(label)]["asd"] = found.asd;
    sum.hd95 += found.hd95;
    sum.asd += found.asd;
  }
  const double classes = static_cast<double>(counts.classes.size());
  scores.values["hd95"] = sum.hd95 / classes;
  scores.values["asd"] = sum.asd / classes;
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
  add_distances(scores, counts, read_pair(prediction, reference, options, pool), reference.info, pool);
  return scores;
}

}  // namespace

MetricEntry segmentation_metric() {
  return {.name = "segmentation",
          .help = "overlap and distance of label volumes, per class and in the mean",
          .scores = {{"dice", "2 TP / (2 TP + FP + FN); 1 where both are empty"},
                     {"iou", "TP / (TP + FP + FN), Jaccard's index; 1 where both are empty"},
                     {"precision", "TP / (TP + FP)"},
                     {"recall", "TP / (TP + FN)"},
                     {"hd95",
                      "95th percentile of the distances between surfaces, the worse direction, in mm; the volume's "
                      "diagonal where only one has the class",
                      ScoreInfo::Better::kLower},
                     {"asd", "mean distance between surfaces, both directions, in mm; likewise",
                      ScoreInfo::Better::kLower}},
          .evaluate = evaluate,
          .mean = mean_of_cases};
}

}  // namespace vox
