// A beam's field is drawn once, in the plane through the isocentre that the beam meets at right angles, where a cell is
// as large as a voxel. A voxel is in the field if the ray through it meets a marked cell.
#include "io/openkbp_beams.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <optional>
#include <vector>

#include "io/openkbp_csv.h"

namespace vox {
namespace {

// The middle of the targets, in voxels; nothing where there is none.
std::optional<std::array<double, 3>> isocentre_of(const uint16_t* target) {
  std::array<int64_t, 3> sum{};
  int64_t voxels = 0;
  for (int64_t i = 0; i < kOpenKbpVoxels; ++i) {
    if (target[i] == 0) continue;
    sum[0] += i / (kOpenKbpSide * kOpenKbpSide);
    sum[1] += i / kOpenKbpSide % kOpenKbpSide;
    sum[2] += i % kOpenKbpSide;
    ++voxels;
  }
  if (voxels == 0) return std::nullopt;
  const auto mean = [&](int axis) { return static_cast<double>(sum[axis]) / static_cast<double>(voxels); };
  return std::array{mean(0), mean(1), mean(2)};
}

class BeamField {
 public:
  BeamField(double gantry, const std::array<double, 3>& isocentre, const Spacing3& spacing)
      : towards_source_{-std::cos(gantry), std::sin(gantry)},
        isocentre_(isocentre),
        spacing_(spacing),
        cells_(kSide * kSide, 0) {}

  void mark(const uint16_t* target) {
    for_rows([&](int64_t row, const Sight& sight) {
      for (int64_t x = 0; x < kOpenKbpSide; ++x)
        if (target[row + x] != 0) mark_around(sight.across, cell_along(x, sight));
    });
  }

  void count(uint8_t* beams) const {
    for_rows([&](int64_t row, const Sight& sight) {
      if (sight.across < 0 || sight.across >= kSide) return;
      for (int64_t x = 0; x < kOpenKbpSide; ++x)
        if (const int64_t along = cell_along(x, sight); along >= 0 && along < kSide)
          beams[row + x] += cells_[cell(sight.across, along)];
    });
  }

 private:
  static constexpr int64_t kSide = 1024;  // rays through corners, from a source near the body, end far outside

  // How the source sees a row of voxels along the body.
  struct Sight {
    double magnification;
    int64_t across;  // cell beside the axis
  };

  void mark_around(int64_t across, int64_t along) {
    const auto first = [](int64_t middle) { return std::max<int64_t>(middle - kOpenKbpBeamMargin, 0); };
    const auto end = [](int64_t middle) { return std::min<int64_t>(middle + kOpenKbpBeamMargin + 1, kSide); };
    for (int64_t i = first(across); i < end(across); ++i)
      for (int64_t k = first(along); k < end(along); ++k) cells_[cell(i, k)] = 1;
  }
  static size_t cell(int64_t across, int64_t along) { return static_cast<size_t>(across * kSide + along); }
  int64_t cell_along(int64_t x, const Sight& sight) const {
    return cell_at((static_cast<double>(x) - isocentre_[2]) * sight.magnification);
  }
  static int64_t cell_at(double voxels_from_axis) {
    return std::llround(std::clamp(voxels_from_axis, -2.0 * kSide, 2.0 * kSide)) + kSide / 2;
  }

  // visit(index of the row's first voxel, sight) for every row that lies before the source.
  template <class Visit>
  void for_rows(Visit&& visit) const {
    for (int64_t z = 0; z < kOpenKbpSide; ++z) {
      const double back = (static_cast<double>(z) - isocentre_[0]) * spacing_[0];
      for (int64_t y = 0; y < kOpenKbpSide; ++y) {
        const double side = (static_cast<double>(y) - isocentre_[1]) * spacing_[1];
        const double distance = kOpenKbpSourceMm - (back * towards_source_[0] + side * towards_source_[1]);
        if (distance <= 0) continue;
        const double magnification = kOpenKbpSourceMm / distance;
        const double across = side * towards_source_[0] - back * towards_source_[1];
        visit((z * kOpenKbpSide + y) * kOpenKbpSide, {magnification, cell_at(across * magnification / spacing_[1])});
      }
    }
  }

  const std::array<double, 2> towards_source_;  // along the first and the second axis, of length 1
  const std::array<double, 3> isocentre_;
  const Spacing3 spacing_;
  std::vector<uint8_t> cells_;
};

}  // namespace

void count_openkbp_beams(const uint16_t* target, const Spacing3& spacing, uint8_t* count) {
  std::fill_n(count, kOpenKbpVoxels, uint8_t{0});
  const auto isocentre = isocentre_of(target);
  if (!isocentre) return;
  for (int beam = 0; beam < kOpenKbpBeams; ++beam) {
    BeamField field(2 * std::numbers::pi * beam / kOpenKbpBeams, *isocentre, spacing);
    field.mark(target);
    field.count(count);
  }
}

}  // namespace vox
