// Layouts of two challenges: OpenKBP (a folder of sparse tables per patient) and Vesuvius surface detection.
#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "plan/layout_parts.h"
#include "volume/csv.h"
#include "volume/glob.h"
#include "volume/manifest.h"

namespace vox {
namespace {

bool is_patient(const fs::path& folder) {
  return fs::exists(folder / "ct.csv") && fs::exists(folder / "voxel_dimensions.csv");
}

bool holds_patients(const fs::path& folder) {
  if (!fs::is_directory(folder)) return false;
  return std::any_of(fs::directory_iterator(folder), fs::directory_iterator(),
                     [](const auto& entry) { return entry.is_directory() && is_patient(entry.path()); });
}

void require_doses(const std::vector<Case>& cases) {
  for (const Case& item : cases) {
    const fs::path patient = item.images.front();
    for (const char* name : {"ct.csv", "voxel_dimensions.csv"})
      VOX_CHECK(fs::exists(patient / name), "case ", item.id, ": ", (patient / name).string(),
                " is missing; copy it there, or take the patient's folder away");
    for (const char* name : {"dose.csv", "possible_dose_mask.csv"})
      VOX_CHECK(fs::exists(patient / name), "case ", item.id, ": ", (patient / name).string(),
                " is missing; a patient to learn from has a dose and a mask");
  }
}

}  // namespace

std::optional<Layout> find_openkbp(const fs::path& given) {
  const fs::path folder = fs::is_directory(given / "provided-data") ? given / "provided-data" : given;
  const bool by_split = holds_patients(folder / "train-pats");
  if (!by_split && !holds_patients(folder)) return std::nullopt;
  const std::string patient = by_split ? "*-pats/{id}" : "{id}";
  Layout layout = start_layout(LayoutKind::kOpenKbp, "OpenKBP (a folder of tables per patient)");
  layout.data.root = folder.string();
  layout.data.images = {patient};
  layout.data.label = patient + ":dose";
  layout.data.mask = patient + ":possible_dose_mask";
  layout.data.target = "regression";
  layout.data.split = by_split ? "folder" : "kfold";
  layout.cases = find_cases(layout.data);
  require_doses(layout.cases);
  return layout;
}

std::optional<Layout> find_vesuvius(const fs::path& folder) {
  const fs::path images = folder / "train_images", labels = folder / "train_labels";
  if (!fs::is_directory(images) || !fs::is_directory(labels) || !fs::exists(folder / "train.csv")) return std::nullopt;
  Layout layout =
      start_layout(LayoutKind::kVesuvius, "Vesuvius surface detection (train_images, train_labels, train.csv)");
  DataOptions& data = layout.data;
  data.root = folder.string();
  data.csv = "train.csv";
  if (read_table(folder / "train.csv").column("scroll_id") >= 0) data.group_column = "scroll_id";
  data.images = {"train_images/{id}" + only_suffix(images)};
  data.label = "train_labels/{id}" + only_suffix(labels);
  data.ignore_label = 2;
  data.on_bad_case = "skip";  // only to look: what is missing is judged below
  std::vector<std::string> deprecated;
  for (Case& item : find_cases(data)) {
    const fs::path name = fs::path(item.images.front()).filename();
    const bool moved = !volume_exists(item.images.front()) && fs::exists(folder / "deprecated_train_images" / name);
    VOX_CHECK(moved || volume_exists(item.images.front()), "case ", item.id, " of train.csv: its image ",
              item.images.front(), " is missing; copy it there, or take its row out of the table");
    VOX_CHECK(moved || volume_exists(item.label), "case ", item.id, " of train.csv: its label ", item.label,
              " is missing; copy it there, or take its row out of the table");
    if (moved)
      deprecated.push_back(item.id);
    else
      layout.cases.push_back(std::move(item));
  }
  require_all_used(images, layout.cases);
  require_all_used(labels, layout.cases);
  if (deprecated.empty()) data.on_bad_case = "fail";
  if (!deprecated.empty())
    layout.remarks.push_back(concat(deprecated.size(), " rows of train.csv, ", deprecated.front(),
                                    " first, lie in deprecated_train_images and are left out."));
  return layout;
}

}  // namespace vox
