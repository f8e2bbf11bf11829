#include "cli/case_problems.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "io/format.h"
#include "io/orientation.h"

namespace vox::cli {
namespace {

// In mm: how far apart two volumes of as many voxels lie in the world, at the corner where it is most.
double distance_between(const VolumeInfo& a, const VolumeInfo& b) {
  double largest = 0;
  for (int corner = 0; corner < 8; ++corner) {
    const double xyz1[4] = {corner & 1 ? static_cast<double>(a.extent.x - 1) : 0,
                            corner & 2 ? static_cast<double>(a.extent.y - 1) : 0,
                            corner & 4 ? static_cast<double>(a.extent.z - 1) : 0, 1};
    double squared = 0;
    for (size_t row = 0; row < 3; ++row) {
      double apart = 0;
      for (size_t i = 0; i < 4; ++i) apart += ((*a.affine)[row][i] - (*b.affine)[row][i]) * xyz1[i];
      squared += apart * apart;
    }
    largest = std::max(largest, std::sqrt(squared));
  }
  return largest;
}

VolumeInfo turned_info(const std::string& name) {
  const VolumeInfo info = open_volume(name)->info();
  return info.affine ? apply(info, to_ras(*info.affine)) : info;
}

// Volumes of a case are laid over each other voxel by voxel, wherever their headers say they are.
void judge_places(const Case& item, std::vector<std::string>& problems) {
  const VolumeInfo first = turned_info(item.images.front());
  if (!first.affine) return;
  std::vector<std::string> others(item.images.begin() + 1, item.images.end());
  for (const std::string& name : {item.label, item.mask})
    if (!name.empty()) others.push_back(name);
  for (const std::string& name : others) {
    const VolumeInfo other = turned_info(name);
    if (!other.affine || other.extent != first.extent) continue;
    const double apart = distance_between(first, other);
    const Spacing3 voxel = first.spacing.value_or(Spacing3{});
    if (apart > 0.5 * std::min({voxel.z_mm, voxel.y_mm, voxel.x_mm}))
      problems.push_back(concat("case ", item.id, ": by the headers, ", name, " lies up to ", apart, " mm off ",
                                item.images.front(), "; the voxels are taken to lie on each other"));
  }
}

}  // namespace

std::vector<std::string> problems_of(const Case& item, const CaseValues& values) {
  std::vector<std::string> problems;
  judge_places(item, problems);
  if (!values.minimum.empty() && values.minimum == values.maximum)  // in every channel
    problems.push_back(concat("case ", item.id, ": every voxel of the image has the same value"));
  if (values.label_counts.size() == 1)
    problems.push_back(concat("case ", item.id, ": the whole label is ", values.label_counts.front().first));
  return problems;
}

}  // namespace vox::cli
