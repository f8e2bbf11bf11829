// What the transforms share: composing onto what was drawn, matrices given in mm, and ranges from options. Those of
// values find more in intensity.h.
#pragma once

#include <string>
#include <vector>

#include "augment/augment.h"

namespace vox {

// The next transform of the list sees what the earlier ones made: its map comes first on the way to the source.
void add_map(Drawn& drawn, const SpatialMap& map);

// A linear map of positions in mm, in voxels: spacing^-1 * in_mm * spacing.
SpatialMap from_millimetres(const double (&in_mm)[3][3], const Spacing3& spacing);

// Uniform between the two numbers of an option such as augmentation.rotate.degrees; Error where there are not two.
double draw_between(const std::vector<double>& range, const char* option, Random& random);

// The same, or, balanced, first below or above 1 with equal chance and then uniform on that side.
double draw_about_one(const std::vector<double>& range, bool balanced, const char* option, Random& random);

// One of the axes 0 (z), 1 (y), 2 (x); Error otherwise.
int checked_axis(int64_t axis, const char* option);

// What is drawn.deformation, made where there is none.
Deformation& deformation_of(Drawn& drawn);

std::string triple(const double (&values)[3]);  // "z,y,x" for printing

}  // namespace vox
