// Doses as the OpenKBP challenge exchanges them, in double precision: its scores are compared to nine digits, and the
// volumes that are trained on hold float32.
#pragma once

#include <string>

#include "metrics/metric.h"

namespace vox::cli {

// A sparse CSV (pt_N.csv, or dose.csv of a patient's folder), or a volume of any format.
VolumeSource dose_prediction(const std::string& path);
// A patient's folder: dose.csv, possible_dose_mask.csv, voxel_dimensions.csv and the structures there are.
VolumeSource dose_reference(const std::string& folder);

}  // namespace vox::cli
