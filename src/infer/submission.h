// inference.submission: the files that a challenge expects of its participants, beside the predictions, and their zip.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "infer/output.h"

namespace vox {

enum class Submission { kNone, kVesuvius, kOpenKbp };
Submission submission_from_name(const std::string& name);

// Error where the settings cannot give what the challenge expects.
void require_submittable(Submission submission, const OutputOptions& output, int64_t output_channels);

// Error where `folder` is no patient of OpenKBP, whose dose can be written.
void require_patient(const std::filesystem::path& folder);

// OpenKBP: the doses of `prediction` as `csv`, positive ones of voxels that may receive dose, for the patient of folder
// `patient`.
void write_dose_csv(const std::filesystem::path& csv, const std::filesystem::path& prediction,
                    const std::string& patient);

// Error where two of `files` have one name, for there are no folders in a submission: cases s1/5 and s2/5 are
// both 5.tif.
void require_names_apart(const std::vector<std::filesystem::path>& files);

// submission.zip in `folder`, with `files` at its root.
std::filesystem::path write_submission(const std::filesystem::path& folder,
                                       const std::vector<std::filesystem::path>& files);

}  // namespace vox
