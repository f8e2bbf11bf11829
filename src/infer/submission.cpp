#include "infer/submission.h"

#include <map>
#include <span>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "io/format.h"
#include "io/zip_archive.h"

namespace vox {
namespace {

std::string as_float_text(float value) {  // "18.0", as Python writes the double that holds the float
  const std::string text = shortest(static_cast<double>(value));
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}

}  // namespace

Submission submission_from_name(const std::string& name) {
  if (name == "none") return Submission::kNone;
  if (name == "vesuvius") return Submission::kVesuvius;
  VOX_CHECK(name == "openkbp", "inference.submission is \"", name, "\"; known: none vesuvius openkbp");
  return Submission::kOpenKbp;
}

void require_submittable(Submission submission, const OutputOptions& output, int64_t output_channels) {
  if (submission == Submission::kVesuvius)
    VOX_CHECK(output.decode.labels() && output.format == "tif" && !PostChain(output.postprocess).makes_objects(),
              "inference.submission: vesuvius is made of uint8 labels in <id>.tif; leave out --probabilities and steps "
              "of inference.postprocess that make objects, and inference.format as it is, or set "
              "inference.submission=none");
  if (submission == Submission::kOpenKbp)
    VOX_CHECK(
        output.decode.regression && output_channels == 1,
        "inference.submission: openkbp is made of doses: it needs data.target: regression and one output channel, "
        "and this network has ",
        output_channels);
}

void require_patient(const std::filesystem::path& folder) {
  VOX_CHECK(
      std::filesystem::exists(folder / "possible_dose_mask.csv"), folder.string(),
      ": inference.submission: openkbp needs patients, folders with ct.csv and possible_dose_mask.csv; leave it out, "
      "as by inference.submission=none");
}

void require_names_apart(const std::vector<std::filesystem::path>& files) {
  std::map<std::string, std::filesystem::path> known;
  for (const std::filesystem::path& file : files) {
    const auto [before, is_new] = known.emplace(file.filename().string(), file);
    VOX_CHECK(is_new, "inference.submission: ", before->second.string(), " and ", file.string(), " would both be ",
              before->first, " in submission.zip; give the cases ids that differ without folders");
  }
}

void write_dose_csv(const std::filesystem::path& csv, const std::filesystem::path& prediction,
                    const std::string& patient) {
  const Volume dose = read_volume(prediction.string()), mask = read_volume(patient + ":possible_dose_mask");
  VOX_CHECK(dose.info.extent == mask.info.extent && dose.info.dtype == DType::kFloat32, prediction.string(), " is ",
            dose.info.extent, " of ", name_of(dose.info.dtype), "; expected ", mask.info.extent, " of float32");
  std::string text = ",data\n";
  int64_t rows = 0;
  with_type(mask.info.dtype, [&](auto tag) {
    const auto* may_receive = mask.as<decltype(tag)>();
    const float* value = dose.as<float>();
    for (int64_t i = 0; i < dose.info.voxels(); ++i) {
      if (may_receive[i] == decltype(tag){0} || !(value[i] > 0)) continue;
      text += std::to_string(i) + ',' + as_float_text(value[i]) + '\n';
      ++rows;
    }
  });
  VOX_CHECK(rows > 0, prediction.string(),
            ": no voxel that may receive dose has one, and the challenge's evaluator "
            "cannot read a file without rows; train further");
  write_file(csv, text);
}

std::filesystem::path write_submission(const std::filesystem::path& folder,
                                       const std::vector<std::filesystem::path>& files) {
  const std::filesystem::path path = folder / "submission.zip";
  OutputFile output(path);
  ZipWriter zip(output);
  for (const std::filesystem::path& file : files) {
    const std::string bytes = read_file(file);
    zip.add(file.filename().string(), std::as_bytes(std::span(bytes)));
  }
  zip.finish();
  output.commit();
  return path;
}

}  // namespace vox
