// Scores of instance segmentations, from the table of how often labels meet: variation of information, adapted Rand
// error, average precision at thresholds of intersection over union, panoptic quality (Kirillov 2019).
#include <algorithm>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "metrics/contingency.h"
#include "metrics/label_volume.h"
#include "metrics/metric.h"

namespace vox {
namespace {

constexpr int kThresholds = 10;  // 0.50, 0.55, ... 0.95

double threshold(int i) {
  return 0.5 + 0.05 * i;
}

struct Overlap {
  uint32_t reference, prediction;
  double iou;
};

struct Instances {
  std::vector<Overlap> overlaps;  // the largest first
  int64_t references = 0, predictions = 0;
};

Instances instances_of(const Contingency& pairs) {
  std::map<uint32_t, int64_t> references = pairs.reference_sizes(), predictions = pairs.prediction_sizes();
  Instances found;
  for (const ContingencyCell& cell : pairs.cells) {
    if (cell.reference == 0 || cell.prediction == 0) continue;
    const int64_t either = references[cell.reference] + predictions[cell.prediction] - cell.voxels;
    found.overlaps.push_back(
        {cell.reference, cell.prediction, static_cast<double>(cell.voxels) / static_cast<double>(either)});
  }
  std::stable_sort(found.overlaps.begin(), found.overlaps.end(),
                   [](const Overlap& a, const Overlap& b) { return a.iou > b.iou; });
  references.erase(0);
  predictions.erase(0);
  found.references = static_cast<int64_t>(references.size());
  found.predictions = static_cast<int64_t>(predictions.size());
  return found;
}

struct Matches {
  int64_t count = 0;
  double iou_sum = 0;
};

// From one half on each instance has one possible partner, but for ties at exactly one half, where any will do.
template <class Accept>
Matches match(const Instances& instances, Accept accept) {
  std::set<uint32_t> references, predictions;
  Matches matches;
  for (const Overlap& overlap : instances.overlaps) {
    if (!accept(overlap.iou)) break;
    if (references.count(overlap.reference) || predictions.count(overlap.prediction)) continue;
    references.insert(overlap.reference);
    predictions.insert(overlap.prediction);
    ++matches.count;
    matches.iou_sum += overlap.iou;
  }
  return matches;
}

void add_precisions(Scores& scores, const Instances& instances) {
  double sum = 0;
  for (int i = 0; i < kThresholds; ++i) {
    const double least = threshold(i) - 1e-12;  // 0.55 is no binary fraction
    const int64_t tp = match(instances, [&](double iou) { return iou >= least; }).count;
    const int64_t fp = instances.predictions - tp, fn = instances.references - tp;
    const double ap = tp + fp + fn == 0 ? 1 : static_cast<double>(tp) / static_cast<double>(tp + fp + fn);
    scores.classes[format_number(threshold(i), 2)] = {
        {"ap", ap}, {"tp", static_cast<double>(tp)}, {"fp", static_cast<double>(fp)}, {"fn", static_cast<double>(fn)}};
    sum += ap;
  }
  scores.values["ap50"] = scores.classes.at("0.50").at("ap");
  scores.values["ap75"] = scores.classes.at("0.75").at("ap");
  scores.values["ap"] = sum / kThresholds;
}

double panoptic_quality(const Instances& instances) {
  if (instances.references + instances.predictions == 0) return 1;
  const Matches matches = match(instances, [](double iou) { return iou > 0.5; });
  return 2 * matches.iou_sum / static_cast<double>(instances.references + instances.predictions);
}

Scores evaluate(const VolumeSource& prediction, const VolumeSource& reference, const MetricOptions& options,
                ThreadPool& pool) {
  require_comparable(prediction, reference);
  const std::vector<uint32_t> predicted = read_instance_labels(prediction, pool);
  const std::vector<uint32_t> referred = read_instance_labels(reference, pool);
  std::vector<uint8_t> ignored;
  if (options.ignore_label) ignored = read_where(reference, static_cast<double>(*options.ignore_label), pool);
  const Contingency pairs = count_pairs(referred, predicted, Voxels::kAll, ignored);
  const Voi voi = variation_of_information(pairs);
  Scores scores;
  scores.values = {{"voi_split", voi.split}, {"voi_merge", voi.merge}, {"are", adapted_rand_error(pairs)}};
  const Instances instances = instances_of(pairs);
  add_precisions(scores, instances);
  scores.values["pq"] = panoptic_quality(instances);
  return scores;
}

}  // namespace

MetricEntry instances_metric() {
  constexpr auto kLower = ScoreInfo::Better::kLower;
  return {.name = "instances",
          .help = "agreement of instance segmentations; 0 is the background",
          .scores = {{"voi_split", "H(prediction | reference) in bits, over all voxels", kLower},
                     {"voi_merge", "H(reference | prediction) in bits, over all voxels", kLower},
                     {"are", "adapted Rand error over the voxels that are not 0 in the reference", kLower},
                     {"ap50", "TP / (TP + FP + FN) of instances matched at an IoU of at least 0.5"},
                     {"ap75", "the same at 0.75"},
                     {"ap", "mean of the same at 0.50, 0.55, ... 0.95"},
                     {"pq", "panoptic quality: sum of IoU above 0.5 / (TP + FP / 2 + FN / 2)"}},
          .evaluate = evaluate,
          .mean = mean_of_cases,
          .group = "thresholds"};
}

}  // namespace vox
