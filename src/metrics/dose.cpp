// Dose and DVH score as the OpenKBP challenge's evaluator computes them (Babier 2021), in Gy; lower is better.
// The reference comes with `parts`: possible_dose_mask, and a mask for each structure that was contoured. Structures
// whose name begins with PTV are targets, the others organs at risk.
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "metrics/label_volume.h"
#include "metrics/metric.h"

namespace vox {
namespace {

constexpr double kHotSpotMm3 = 100;  // 0.1 cc
constexpr const char* kDoseMask = "possible_dose_mask";

std::vector<double> read_dose(const VolumeSource& source, ThreadPool& pool) {
  const Extent3 extent = source.info.extent;
  std::vector<double> dose(static_cast<size_t>(extent.voxels()));
  for_each_slab(source, pool, [&](const Box3& box, const std::byte* voxels) {
    double* out = dose.data() + box.begin.z * extent.y * extent.x;
    with_type(source.info.dtype, [&](auto typed) {
      using T = decltype(typed);
      const T* in = reinterpret_cast<const T*>(voxels);
      for (int64_t i = 0; i < box.voxels(); ++i) {
        out[i] = static_cast<double>(in[i]) * source.info.scale + source.info.offset;
        VOX_CHECK(std::isfinite(out[i]), source.name, ": holds a value that is no number; expected doses in Gy.");
      }
    });
  });
  return dose;
}

// As numpy's default: linear between the two nearest ranks.
double percentile(const std::vector<double>& sorted, double percent) {
  const double rank = std::max(percent, 0.0) / 100 * static_cast<double>(sorted.size() - 1);
  const size_t below = static_cast<size_t>(rank), above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (rank - static_cast<double>(below));
}

using Histogram = std::map<std::string, double>;  // the points of a dose-volume histogram that count

Histogram points_of(const std::vector<double>& dose, const std::vector<uint8_t>& mask, bool target, double voxel_mm3) {
  std::vector<double> inside;
  for (size_t i = 0; i < dose.size(); ++i)
    if (mask[i] != 0) inside.push_back(dose[i]);
  if (inside.empty()) return {};
  std::sort(inside.begin(), inside.end());
  if (target)
    return {{"D_99", percentile(inside, 1)}, {"D_95", percentile(inside, 5)}, {"D_1", percentile(inside, 99)}};
  double sum = 0;
  for (const double value : inside) sum += value;
  const double voxels = static_cast<double>(inside.size());
  const double hot_spot = std::max(1.0, std::nearbyint(kHotSpotMm3 / voxel_mm3));
  return {{"D_0.1_cc", percentile(inside, 100 - hot_spot / voxels * 100)}, {"mean", sum / voxels}};
}

double dose_error(const std::vector<double>& prediction, const std::vector<double>& reference,
                  const std::vector<uint8_t>& mask, const std::string& name) {
  double sum = 0, voxels = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    sum += std::abs(reference[i] - prediction[i]);
    voxels += mask[i];
  }
  VOX_CHECK(voxels > 0, name, ": the mask of possible dose is empty; the dose score divides by its voxels.");
  return sum / voxels;
}

void require_patient(const VolumeSource& prediction, const VolumeSource& reference) {
  require_comparable(prediction, reference);
  const bool masked = std::any_of(reference.parts.begin(), reference.parts.end(),
                                  [](const VolumeSource& part) { return part.name == kDoseMask; });
  VOX_CHECK(masked && reference.info.spacing, reference.name,
            ": a dose is scored against a patient: the dose with possible_dose_mask, the structures and the size of a "
            "voxel. Expected an OpenKBP folder.");
}

// `errors` are pooled by the mean over cases, so each point has its own entry.
void add_structure(Scores& scores, const std::string& name, const Histogram& prediction, const Histogram& reference) {
  for (const auto& [point, value] : reference) {
    std::map<std::string, double>& of = scores.classes[name];
    of[point] = std::abs(value - prediction.at(point));
    of[point + "_prediction"] = prediction.at(point);
    of[point + "_reference"] = value;
  }
}

bool is_error(const std::string& point) {
  return !point.ends_with("_prediction") && !point.ends_with("_reference");
}

double pooled_dvh(const std::vector<Scores>& cases) {
  double sum = 0, entries = 0;
  for (const Scores& scores : cases) {
    for (const auto& [structure, points] : scores.classes) {
      for (const auto& [point, value] : points) {
        if (!is_error(point)) continue;
        sum += value;
        ++entries;
      }
    }
  }
  return entries == 0 ? 0 : sum / entries;
}

Scores evaluate(const VolumeSource& prediction, const VolumeSource& reference, const MetricOptions&, ThreadPool& pool) {
  require_patient(prediction, reference);
  const std::vector<double> predicted = read_dose(prediction, pool), referred = read_dose(reference, pool);
  const Spacing3 spacing = *reference.info.spacing;
  const double voxel_mm3 = spacing.z_mm * spacing.y_mm * spacing.x_mm;
  Scores scores;
  for (const VolumeSource& part : reference.parts) {
    const std::vector<uint8_t> mask = read_mask(part, pool);
    if (part.name == kDoseMask) {
      scores.values["dose_error"] = dose_error(predicted, referred, mask, reference.name);
    } else {
      const bool target = part.name.starts_with("PTV");
      add_structure(scores, part.name, points_of(predicted, mask, target, voxel_mm3),
                    points_of(referred, mask, target, voxel_mm3));
    }
  }
  scores.values["dose_score"] = scores.values.at("dose_error");
  scores.values["dvh_score"] = pooled_dvh({scores});
  return scores;
}

Scores mean(const std::vector<Scores>& cases) {
  Scores scores = mean_of_cases(cases);
  if (!cases.empty()) scores.values["dvh_score"] = pooled_dvh(cases);
  return scores;
}

}  // namespace

MetricEntry dose_metric() {
  constexpr auto kLower = ScoreInfo::Better::kLower;
  return {
      .name = "dose",
      .help = "dose and DVH score of OpenKBP, in Gy",
      .scores = {{"dose_score", "sum of |reference - prediction| / voxels that may receive dose; mean over patients",
                  kLower},
                 {"dvh_score",
                  "mean |reference - prediction| of the DVH points D_0.1_cc, mean (organs), D_99, D_95, D_1 (PTVs), "
                  "pooled over patients",
                  kLower}},
      .evaluate = evaluate,
      .mean = mean,
      .group = "structures"};
}

}  // namespace vox
