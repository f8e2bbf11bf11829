// A beam's field is a map in the plane through the isocentre that the beam meets at right angles. A voxel's dose is the
// sum over the beams of the field where the ray through the voxel meets that plane, weakened by the tissue before it.
// What a dose costs is a weighted sum of squares: of what targets lack or get too much, of what other voxels get beyond
// what is free there, and of the differences between neighbouring cells; and a little for what the two side beams give.
// Fields are found by the multiplicative rule for non-negative least squares (Daube-Witherspoon & Muehllehner 1986):
// x <- x * (A'W wanted) / (A'W A x), which keeps what is positive positive and needs no step size. Weights are those of
// the side on which a voxel's dose is, anew in each round.
#include "io/openkbp_plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <vector>

#include "io/openkbp_csv.h"
#include "io/openkbp_goals.h"

namespace vox {
namespace {

using Point = std::array<double, 3>;

constexpr int kBeams = 9;
constexpr double kSourceMm = 1000;  // from the isocentre
constexpr int kCells = 80;          // along each side of a field
constexpr double kCellMm = 5;
constexpr int kFieldCells = kCells * kCells;

// What a beam loses in tissue, and the build-up below the skin. As in 6 MV beams, roughly.
constexpr double kLossPerMm = 0.0045, kSkinLoss = 0.4, kSkinMm = 6;
constexpr double kWaterCt = 1000, kDensestTissue = 2;  // in parts of water
constexpr double kRayStepMm = 4, kRayMm = 400;

// The numbers below were chosen on the doses of 20 training patients.
constexpr double kPenumbraMm = 5.2;
constexpr float kUnevenAcrossWeight = 1.9f, kUnevenAlongWeight = 0.085f;  // of the body's axis
constexpr int kRounds = 120;
// Found by trial, not known of the real plans: that the two beams from the sides cost something.
constexpr std::array<float, kBeams> kFieldCost{0, 0, 0.85f, 0, 0, 0, 0, 0.85f, 0};

// How a beam reaches a voxel: between which four cells of its field, and what is left of it there.
struct Reach {
  int32_t cell;  // the first of the four, of all fields
  float across, along, strength;
};

class Beams {
 public:
  explicit Beams(const OpenKbpAnatomy& anatomy) : anatomy_(anatomy) {
    find_isocentre();
    find_body();
    for (int beam = 0; beam < kBeams; ++beam) {
      const double gantry = 2 * std::numbers::pi * beam / kBeams;
      towards_source_[static_cast<size_t>(beam)] = {-std::cos(gantry), std::sin(gantry), 0};
    }
  }

  // kBeams of them for each voxel.
  std::vector<Reach> reaches_of(const std::vector<int64_t>& voxels) const {
    std::vector<Reach> reaches;
    reaches.reserve(voxels.size() * kBeams);
    for (const int64_t voxel : voxels)
      for (int beam = 0; beam < kBeams; ++beam) reaches.push_back(reach_of(voxel, beam));
    return reaches;
  }

 private:
  void find_isocentre() {
    double targets = 0;
    for (int64_t voxel = 0; voxel < kOpenKbpVoxels; ++voxel) {
      if (!is_openkbp_target(anatomy_.bits[voxel])) continue;
      ++targets;
      for (size_t axis = 0; axis < 3; ++axis) isocentre_[axis] += static_cast<double>(openkbp_place_of(voxel)[axis]);
    }
    for (double& place : isocentre_) place /= std::max(targets, 1.0);
  }

  void find_body() {
    for (int64_t voxel = 0; voxel < kOpenKbpVoxels; ++voxel) {
      if (anatomy_.ct[voxel] == 0) continue;
      const auto place = openkbp_place_of(voxel);
      for (size_t axis = 0; axis < 3; ++axis) {
        body_begin_[axis] = std::min(body_begin_[axis], static_cast<double>(place[axis]) - 0.5);
        body_end_[axis] = std::max(body_end_[axis], static_cast<double>(place[axis]) + 0.5);
      }
    }
  }

  Reach reach_of(int64_t voxel, int beam) const {
    const Point& towards = towards_source_[static_cast<size_t>(beam)];
    const auto place = openkbp_place_of(voxel);
    Point from_isocentre;
    for (size_t axis = 0; axis < 3; ++axis)
      from_isocentre[axis] =
          (static_cast<double>(place[axis]) - isocentre_[axis]) * anatomy_.spacing[static_cast<int>(axis)];
    const double nearness = from_isocentre[0] * towards[0] + from_isocentre[1] * towards[1];
    const double magnification = kSourceMm / (kSourceMm - nearness);
    const double across = (from_isocentre[1] * towards[0] - from_isocentre[0] * towards[1]) * magnification;
    const double u = across / kCellMm + (kCells - 1) / 2.0;
    const double v = from_isocentre[2] * magnification / kCellMm + (kCells - 1) / 2.0;
    const bool inside = nearness < kSourceMm && u >= 0 && v >= 0 && u < kCells - 1 && v < kCells - 1;
    if (!inside) return {beam * kFieldCells, 0, 0, 0};
    Point ray;
    double length_squared = 0;
    for (size_t axis = 0; axis < 3; ++axis) {
      ray[axis] = kSourceMm * towards[axis] - from_isocentre[axis];
      length_squared += ray[axis] * ray[axis];
    }
    const double depth = depth_along(place, ray, std::sqrt(length_squared));
    const double strength = std::exp(-kLossPerMm * depth) * (1 - kSkinLoss * std::exp(-depth / kSkinMm)) * kSourceMm *
                            kSourceMm / length_squared;
    const auto row = static_cast<int32_t>(u), column = static_cast<int32_t>(v);
    return {beam * kFieldCells + row * kCells + column, static_cast<float>(u - row), static_cast<float>(v - column),
            static_cast<float>(strength)};
  }

  // Millimetres of water that the tissue between a voxel and the source is worth.
  double depth_along(const std::array<int64_t, 3>& place, const Point& ray, double length) const {
    Point at, step;
    for (size_t axis = 0; axis < 3; ++axis) {
      step[axis] = ray[axis] / length * kRayStepMm / anatomy_.spacing[static_cast<int>(axis)];
      at[axis] = static_cast<double>(place[axis]) + step[axis] / 2;
    }
    double water = 0;
    for (int i = 0; i < static_cast<int>(kRayMm / kRayStepMm); ++i) {
      int64_t voxel = 0;
      for (size_t axis = 0; axis < 3; ++axis) {
        if (at[axis] < body_begin_[axis] || at[axis] >= body_end_[axis]) return water * kRayStepMm;
        voxel = voxel * kOpenKbpSide + static_cast<int64_t>(at[axis] + 0.5);
        at[axis] += step[axis];
      }
      water += std::clamp(anatomy_.ct[voxel] / kWaterCt, 0.0, kDensestTissue);
    }
    return water * kRayStepMm;
  }

  const OpenKbpAnatomy& anatomy_;
  Point isocentre_{};
  Point body_begin_{kOpenKbpSide, kOpenKbpSide, kOpenKbpSide}, body_end_{};
  std::array<Point, kBeams> towards_source_;
};

using Fields = std::vector<float>;  // kBeams x kCells x kCells

// The edge of a beam is no edge: a Gaussian along both sides of each field, with nothing beyond them.
class Penumbra {
 public:
  Penumbra() {
    float sum = 0;
    for (int i = 0; i < kTaps; ++i) {
      const double cells = (i - kTaps / 2) * kCellMm / kPenumbraMm;
      sum += taps_[static_cast<size_t>(i)] = static_cast<float>(std::exp(-cells * cells / 2));
    }
    for (float& tap : taps_) tap /= sum;
  }

  Fields operator()(const Fields& fields) const {
    const Fields once = along_columns_turned(fields);
    return along_columns_turned(once);
  }

 private:
  static constexpr int kTaps = 9;

  Fields along_columns_turned(const Fields& fields) const {
    Fields out(fields.size());
    for (int64_t beam = 0; beam < kBeams; ++beam) {
      for (int64_t row = 0; row < kCells; ++row) {
        std::array<float, kCells + kTaps - 1> padded{};
        std::copy_n(&fields[static_cast<size_t>((beam * kCells + row) * kCells)], kCells, padded.data() + kTaps / 2);
        for (int64_t column = 0; column < kCells; ++column) {
          float sum = 0;
          for (int64_t i = 0; i < kTaps; ++i)
            sum += taps_[static_cast<size_t>(i)] * padded[static_cast<size_t>(column + i)];
          out[static_cast<size_t>((beam * kCells + column) * kCells + row)] = sum;
        }
      }
    }
    return out;
  }

  std::array<float, kTaps> taps_;
};

std::array<float, 4> parts_of(const Reach& reach) {
  const float u = reach.across, v = reach.along, s = reach.strength;
  return {s * (1 - u) * (1 - v), s * (1 - u) * v, s * u * (1 - v), s * u * v};
}

constexpr std::array<int64_t, 4> kCorner{0, 1, kCells, kCells + 1};

std::vector<float> dose_of(const Fields& fields, const std::vector<Reach>& reaches) {
  std::vector<float> dose(reaches.size() / kBeams);
  for (size_t i = 0; i < reaches.size(); ++i) {
    const std::array<float, 4> parts = parts_of(reaches[i]);
    const float* field = fields.data() + reaches[i].cell;
    float sum = 0;
    for (size_t corner = 0; corner < 4; ++corner) sum += parts[corner] * field[kCorner[corner]];
    dose[i / kBeams] += sum;
  }
  return dose;
}

Fields collected(const std::vector<float>& values, const std::vector<Reach>& reaches) {
  Fields fields(kBeams * kFieldCells);
  for (size_t i = 0; i < reaches.size(); ++i) {
    if (values[i / kBeams] == 0) continue;
    const std::array<float, 4> parts = parts_of(reaches[i]);
    float* field = fields.data() + reaches[i].cell;
    for (size_t corner = 0; corner < 4; ++corner) field[kCorner[corner]] += parts[corner] * values[i / kBeams];
  }
  return fields;
}

// Each cell as strong as what the highest target in its sight is to get.
Fields shadow_of(const OpenKbpGoals& goals, const std::vector<Reach>& reaches) {
  Fields fields(kBeams * kFieldCells);
  for (size_t i = 0; i < reaches.size(); ++i) {
    const OpenKbpGoal& goal = goals.goals[i / kBeams];
    if (goal.below == 0 || reaches[i].strength == 0) continue;
    for (const int64_t corner : kCorner) {
      float& cell = fields[static_cast<size_t>(reaches[i].cell + corner)];
      cell = std::max(cell, goal.gray);
    }
  }
  return fields;
}

// Both sides of the rule, of which `wanted` is divided by `given`.
struct Sides {
  Fields wanted, given;
};

Sides sides_of(const OpenKbpGoals& goals, const std::vector<Reach>& reaches, const std::vector<float>& dose) {
  std::vector<float> wanted(dose.size()), given(dose.size());
  for (size_t i = 0; i < dose.size(); ++i) {
    const OpenKbpGoal& goal = goals.goals[i];
    const float weight = dose[i] < goal.gray ? goal.below : goal.above;
    wanted[i] = weight * goal.gray;
    given[i] = weight * dose[i];
  }
  return {collected(wanted, reaches), collected(given, reaches)};
}

// Neighbours are drawn to the middle between them, not to one another, which would swing (De Pierro 1995).
void add_unevenness(const Fields& fields, Sides& sides) {
  const auto add = [&](size_t cell, size_t neighbour, float weight) {
    const float both = weight * (fields[cell] + fields[neighbour]);
    sides.wanted[cell] += both;
    sides.wanted[neighbour] += both;
    sides.given[cell] += 2 * weight * fields[cell];
    sides.given[neighbour] += 2 * weight * fields[neighbour];
  };
  for (size_t cell = 0; cell < fields.size(); ++cell) {
    const bool last_row = cell % kFieldCells / kCells == kCells - 1, last_column = cell % kCells == kCells - 1;
    if (!last_row) add(cell, cell + kCells, kUnevenAcrossWeight);
    if (!last_column) add(cell, cell + 1, kUnevenAlongWeight);
  }
}

Fields optimised(const OpenKbpGoals& goals, const std::vector<Reach>& reaches, const Penumbra& spread) {
  Fields fields = shadow_of(goals, reaches);
  for (int round = 0; round < kRounds; ++round) {
    Sides sides = sides_of(goals, reaches, dose_of(spread(fields), reaches));
    sides = {spread(sides.wanted), spread(sides.given)};
    add_unevenness(fields, sides);
    for (size_t i = 0; i < fields.size(); ++i) {
      const float given = sides.given[i] + kFieldCost[i / kFieldCells];
      if (fields[i] == 0 || given == 0) continue;
      const float ratio = sides.wanted[i] / given;
      fields[i] *= ratio * std::sqrt(ratio);  // the rule's step and half of it again: a third fewer rounds
    }
  }
  return spread(fields);
}

}  // namespace

void plan_openkbp_dose(const OpenKbpAnatomy& anatomy, float* dose) {
  const Beams beams(anatomy);
  const OpenKbpGoals goals = openkbp_goals_of(anatomy);
  const Fields fields = optimised(goals, beams.reaches_of(goals.voxels), Penumbra());
  std::vector<int64_t> voxels;
  for (int64_t voxel = 0; voxel < kOpenKbpVoxels; ++voxel)
    if (may_get_openkbp_dose(anatomy.bits[voxel])) voxels.push_back(voxel);
  const std::vector<float> given = dose_of(fields, beams.reaches_of(voxels));
  std::fill_n(dose, kOpenKbpVoxels, 0.0f);
  for (size_t i = 0; i < voxels.size(); ++i) dose[voxels[i]] = given[i];
}

}  // namespace vox
