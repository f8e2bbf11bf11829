// The score of the Vesuvius Challenge's surface detection: 0.30 TopoScore + 0.35 surface Dice at 2 voxels + 0.35 VOI
// score. Voxels that the reference leaves unlabelled become background in both masks; whatever else is not 0 is
// foreground.
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/betti_matching.h"
#include "kernels/components.h"
#include "metrics/contingency.h"
#include "metrics/label_volume.h"
#include "metrics/metric.h"
#include "metrics/surface_dice.h"

namespace vox {
namespace {

constexpr int64_t kUnlabelled = 2;  // where --ignore-label says nothing else
constexpr double kTolerance = 2, kVoiAlpha = 0.3;
constexpr double kTopoWeight = 0.3, kSurfaceWeight = 0.35, kVoiWeight = 0.35;
constexpr double kDimensionWeights[3] = {0.34, 0.33, 0.33};

struct Masks {
  std::vector<uint8_t> prediction, reference;
  Extent3 extent;
};

Masks read_masks(const VolumeSource& prediction, const VolumeSource& reference, const MetricOptions& options,
                 ThreadPool& pool) {
  Masks masks{read_mask(prediction, pool), read_mask(reference, pool), reference.info.extent};
  const std::vector<uint8_t> ignored =
      read_where(reference, static_cast<double>(options.ignore_label.value_or(kUnlabelled)), pool);
  for (size_t i = 0; i < ignored.size(); ++i)
    if (ignored[i]) masks.prediction[i] = masks.reference[i] = 0;
  return masks;
}

// Each axis is halved; the first half gets the odd voxel.
Box3 octant(const Extent3& extent, int64_t index) {
  Box3 box;
  for (int axis = 0; axis < 3; ++axis) {
    const int64_t cut = (extent[axis] + 1) / 2;
    const bool second = (index >> (2 - axis) & 1) != 0;
    box.begin[axis] = second ? cut : 0;
    box.end[axis] = second ? extent[axis] : cut;
  }
  return box;
}

std::vector<uint8_t> cut(const std::vector<uint8_t>& mask, const Extent3& extent, const Box3& box) {
  std::vector<uint8_t> part;
  part.reserve(static_cast<size_t>(box.voxels()));
  for (int64_t z = box.begin.z; z < box.end.z; ++z) {
    for (int64_t y = box.begin.y; y < box.end.y; ++y) {
      const auto row = mask.begin() + (z * extent.y + y) * extent.x;
      part.insert(part.end(), row + box.begin.x, row + box.end.x);
    }
  }
  return part;
}

BettiMatches match_octant(const Masks& masks, int64_t index) {
  const Box3 box = octant(masks.extent, index);
  if (box.empty()) return {};
  const std::vector<uint8_t> p = cut(masks.prediction, masks.extent, box);
  const std::vector<uint8_t> g = cut(masks.reference, masks.extent, box);
  return match_betti_cpu(p.data(), g.data(), box.extent());
}

// F1 of each dimension; where the reference has nothing, inventing costs, and where neither has, it does not count.
double topo_score(const BettiMatches& counts) {
  double sum = 0, weights = 0;
  for (size_t k = 0; k < 3; ++k) {
    const double p = static_cast<double>(counts.p[k]), g = static_cast<double>(counts.g[k]);
    if (p + g == 0) continue;
    const double f1 = g > 0 ? 2 * static_cast<double>(counts.m[k]) / (p + g) : 0.5 / (p + 0.5);
    sum += kDimensionWeights[k] * f1;
    weights += kDimensionWeights[k];
  }
  return weights == 0 ? 1 : sum / weights;
}

Voi voi_of(const Masks& masks) {
  std::vector<uint32_t> prediction(masks.prediction.size()), reference(masks.reference.size());
  components_cpu(prediction.data(), masks.prediction.data(), masks.extent, Connectivity::kCorners);
  components_cpu(reference.data(), masks.reference.data(), masks.extent, Connectivity::kCorners);
  return variation_of_information(count_pairs(reference, prediction, Voxels::kOfEither));
}

struct Terms {
  BettiMatches betti;
  double surface_dice = 0;
  Voi voi;
};

// Octants first: they take longest. The other two fill the threads that are done with theirs.
Terms compute_terms(const Masks& masks, ThreadPool& pool) {
  std::vector<BettiMatches> octants(8);
  Terms terms;
  pool.for_each(10, [&](int64_t piece) {
    if (piece < 8)
      octants[static_cast<size_t>(piece)] = match_octant(masks, piece);
    else if (piece == 8)
      terms.surface_dice =
          surface_dice(masks.prediction.data(), masks.reference.data(), masks.extent, kTolerance, pool);
    else
      terms.voi = voi_of(masks);
  });
  for (const BettiMatches& part : octants) terms.betti += part;
  return terms;
}

Scores evaluate(const VolumeSource& prediction, const VolumeSource& reference, const MetricOptions& options,
                ThreadPool& pool) {
  require_comparable(prediction, reference);
  const Terms terms = compute_terms(read_masks(prediction, reference, options, pool), pool);
  const double topo = topo_score(terms.betti), bits = terms.voi.split + terms.voi.merge;
  const double voi = 1 / (1 + kVoiAlpha * bits);
  const double score = kTopoWeight * topo + kSurfaceWeight * terms.surface_dice + kVoiWeight * voi;
  Scores scores;
  scores.values = {{"score", std::clamp(score, 0.0, 1.0)},
                   {"topo", topo},
                   {"surface_dice", terms.surface_dice},
                   {"voi", voi},
                   {"voi_bits", bits},
                   {"voi_split", terms.voi.split},
                   {"voi_merge", terms.voi.merge}};
  for (size_t k = 0; k < 3; ++k)
    scores.classes[std::to_string(k)] = {{"p", static_cast<double>(terms.betti.p[k])},
                                         {"g", static_cast<double>(terms.betti.g[k])},
                                         {"m", static_cast<double>(terms.betti.m[k])}};
  return scores;
}

}  // namespace

MetricEntry surface_metric() {
  constexpr auto kLower = ScoreInfo::Better::kLower;
  return {.name = "surface",
          .help =
              "the Vesuvius Challenge's score of surface detection; label 2 is ignored unless --ignore-label says "
              "otherwise",
          .scores = {{"score", "0.30 topo + 0.35 surface_dice + 0.35 voi"},
                     {"topo", "F1 of matched components, tunnels and cavities, summed over eight octants"},
                     {"surface_dice", "share of both surfaces within 2 voxels of the other"},
                     {"voi", "1 / (1 + 0.3 voi_bits)"},
                     {"voi_bits", "voi_split + voi_merge, over 26-connected components", kLower}},
          .evaluate = evaluate,
          .mean = mean_of_cases,
          .group = "betti"};
}

}  // namespace vox
