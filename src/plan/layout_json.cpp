// Layouts that a JSON file describes: nnU-Net's raw folders, and the datalists of MONAI and the Medical Segmentation
// Decathlon.
#include <algorithm>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "plan/layout_parts.h"
#include "volume/glob.h"
#include "volume/manifest.h"

namespace vox {
namespace {

using nlohmann::json;

json parse_any(const fs::path& file) {  // discarded where it is no JSON
  return json::parse(read_file(file), nullptr, /*allow_exceptions=*/false);
}

json parse(const fs::path& file) {
  json parsed = parse_any(file);
  VOX_CHECK(parsed.is_object(), file.string(), ": this is not JSON that describes a dataset (an object)");
  return parsed;
}

bool is_datalist(const json& description) {
  const auto training = description.find("training");
  return training != description.end() && training->is_array() && !training->empty() && training->front().is_object() &&
         training->front().contains("image");
}

// {"0": "CT", "1": "PET"} under channel_names or, in older files, modality.
std::vector<std::string> channel_names(const json& description, const fs::path& file) {
  const char* key = description.contains("channel_names") ? "channel_names" : "modality";
  if (!description.contains(key)) return {};
  std::map<int, std::string> names;
  VOX_CHECK(description[key].is_object(), file.string(), ": ", key, " must name channels, as in {\"0\": \"CT\"}");
  for (const auto& [number, name] : description[key].items()) {
    const bool digits =
        !number.empty() && number.size() < 4 && number.find_first_not_of("0123456789") == std::string::npos;
    VOX_CHECK(digits && name.is_string(), file.string(), ": ", key, " must name channels, as in {\"0\": \"CT\"}");
    names[std::stoi(number)] = name.get<std::string>();
  }
  std::vector<std::string> result;
  for (const auto& [number, name] : names) result.push_back(name);
  return result;
}

int64_t whole_number(const json& value, const std::string& what, const fs::path& file) {
  if (value.is_number_integer()) return value.get<int64_t>();
  const std::string text = value.is_string() ? value.get<std::string>() : "";
  VOX_CHECK(!text.empty() && text.size() < 10 && text.find_first_not_of("0123456789") == std::string::npos,
            file.string(), ": the label ", printable(what), " has no whole number");
  return std::stoll(text);
}

// {"background": 0, "liver": 1} as nnU-Net v2 writes it, or {"0": "background"} as the Decathlon does.
void read_labels(const json& description, const fs::path& file, Layout& layout) {
  if (!description.contains("labels") || !description["labels"].is_object()) return;
  layout.description = file.filename().string();
  std::set<int64_t>& values = layout.label_values;
  for (const auto& [key, value] : description["labels"].items()) {
    if (value.is_array() && value.size() != 1) {
      for (const json& one : value) values.insert(whole_number(one, key, file));
      layout.remarks.push_back(concat("The label ", printable(key),
                                      " of dataset.json is a region of several values; here "
                                      "each value is a class of its own."));
    } else if (value.is_string() && !key.empty() && std::isdigit(static_cast<unsigned char>(key.front()))) {
      const int64_t number = whole_number(json(key), key, file);
      layout.label_names[number] = value.get<std::string>();
      values.insert(number);
    } else {
      const int64_t number = whole_number(value.is_array() ? value.front() : value, key, file);
      if (key == "ignore") layout.data.ignore_label = number;
      if (key != "ignore") layout.label_names[number] = key;
      values.insert(number);
    }
  }
  values.insert(0);
}

std::string as_path(const json& value, const fs::path& file) {
  VOX_CHECK(value.is_string(), file.string(), ": an image or label of the list is not a file's name");
  const std::string name = value.get<std::string>();
  return name.starts_with("./") ? name.substr(2) : name;
}

CaseEntry entry_of(const json& item, const std::string& split, const fs::path& file) {
  VOX_CHECK(item.is_object() && item.contains("image") && item.contains("label"), file.string(), ": an entry of \"",
            split == "validation" ? "validation" : "training",
            "\" has no image or no label: ", printable(item.dump(-1, ' ', true, json::error_handler_t::replace)));
  CaseEntry entry;
  if (item["image"].is_array())
    for (const json& image : item["image"]) entry.images.push_back(as_path(image, file));
  else
    entry.images.push_back(as_path(item["image"], file));
  VOX_CHECK(!entry.images.empty(), file.string(), ": an entry of the list names no image");
  entry.label = as_path(item["label"], file);
  entry.id = volume_stem(entry.images.front());
  entry.split = split;
  if (split.empty() && item.contains("fold")) {
    const json& fold = item["fold"];
    VOX_CHECK(fold.is_number_integer() && fold >= 0, file.string(), ": the fold of case ", entry.id,
              " is no whole number from 0 on");
    entry.fold = fold.get<int64_t>();
  }
  return entry;
}

void set_split(const json& list, const fs::path& file, Layout& layout) {
  DataOptions& data = layout.data;
  const bool held_out = list.contains("validation") && !list["validation"].empty();
  std::set<int64_t> folds;
  for (const CaseEntry& entry : data.cases) folds.insert(entry.fold);
  for (const CaseEntry& entry : data.cases)
    VOX_CHECK(held_out || folds.size() == 1 || entry.fold >= 0, file.string(), ": case ", entry.id,
              " has no fold, though others have; give it one");
  if (held_out) {
    data.split = "column";  // as each entry says
    for (CaseEntry& entry : data.cases)
      if (entry.split.empty()) entry.split = "train", entry.fold = -1;
  } else if (folds.size() > 1) {
    data.folds = static_cast<int64_t>(folds.size());
    const bool counted = *folds.rbegin() == data.folds - 1;
    for (CaseEntry& entry : data.cases) entry.fold = std::distance(folds.begin(), folds.find(entry.fold));
    layout.remarks.push_back(concat("training.fold=0, 1, ... holds out the fold of that number in the list",
                                    counted ? "." : ", counted in order from 0: the list leaves numbers out."));
  } else {
    for (CaseEntry& entry : data.cases) entry.fold = -1;
  }
}

std::optional<fs::path> datalist_in(const fs::path& folder) {
  std::vector<fs::path> files{folder / "dataset.json", folder / "datalist.json"}, others;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".json") others.push_back(entry.path());
  std::sort(others.begin(), others.end());
  files.insert(files.end(), others.begin(), others.end());
  for (const fs::path& file : files) {
    if (!fs::exists(file)) continue;
    const json parsed = parse_any(file);
    const bool meant = file.filename() == "dataset.json" || file.filename() == "datalist.json";
    VOX_CHECK(!meant || !parsed.is_discarded(), file.string(), ": this is no JSON; was it copied completely?");
    if (parsed.is_object() && is_datalist(parsed)) return file;
  }
  return std::nullopt;
}

// Files whose names tell them apart by their folders alone (pat1/image.nii.gz) get ids from these, or from the whole
// path.
void tell_apart(std::vector<CaseEntry>& cases) {
  const auto named_by = [&](const auto& name) {
    std::set<std::string> ids;
    for (const CaseEntry& entry : cases) ids.insert(name(fs::path(entry.images.front())));
    if (ids.size() < cases.size() || ids.contains("")) return false;
    for (CaseEntry& entry : cases) entry.id = name(fs::path(entry.images.front()));
    return true;
  };
  if (named_by([](const fs::path& path) { return volume_stem(path); })) return;
  if (named_by([](const fs::path& path) { return path.parent_path().filename().string(); })) return;
  named_by([](const fs::path& path) {
    std::string name = (path.parent_path() / volume_stem(path)).relative_path().string();
    std::replace(name.begin(), name.end(), '/', '_');
    return name;
  });
}

bool is_numbered(const std::string& name) {
  return ends_with(volume_stem(name), channel_ending(0));
}

// The dataset.json of nnU-Net's first version lists ID.nii.gz where the files are ID_0000.nii.gz.
bool lists_unnumbered(const json& description, const fs::path& folder) {
  const json& image = description["training"].front()["image"];
  if (!image.is_string()) return false;
  const fs::path listed = folder / image.get<std::string>();
  const std::string name = listed.filename().string();
  return !fs::exists(listed) && fs::exists(listed.parent_path() / (volume_stem(name) + "_0000" + suffix_of(name)));
}

void require_named_channels(const fs::path& images, size_t channels) {
  for (const std::string& name : volumes_in(images)) {
    const std::string stem = volume_stem(name), number = stem.size() > 5 ? stem.substr(stem.size() - 4) : "";
    const bool counts =
        stem.size() > 5 && stem[stem.size() - 5] == '_' && number.find_first_not_of("0123456789") == std::string::npos;
    VOX_CHECK(!counts || static_cast<size_t>(std::stoi(number)) < channels, (images / name).string(),
              ": this is channel ", std::stoi(number), " of a case, but dataset.json names ", channels,
              " under channel_names, counted from 0; name it there, or take the file away");
  }
}

}  // namespace

std::string about_json(const fs::path& folder) {
  std::string about;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    about = concat(
        " (", entry.path().filename().string(),
        parse_any(entry.path()).is_discarded() ? " is no JSON)" : " has no list \"training\" of {image, label})");
  }
  return about;
}

std::optional<Layout> find_nnunet(const fs::path& folder) {
  const fs::path images = folder / "imagesTr", labels = folder / "labelsTr", file = folder / "dataset.json";
  if (!fs::is_directory(images) || !fs::is_directory(labels)) return std::nullopt;
  const std::vector<std::string> names = volumes_in(images);
  const bool numbered = std::any_of(names.begin(), names.end(), is_numbered);
  VOX_CHECK(fs::exists(file) || !numbered || datalist_in(folder), file.string(),
            " is missing: nnU-Net's layout (imagesTr/ID_0000, labelsTr/ID) needs it to name channels and labels, as in "
            "{\"channel_names\": {\"0\": \"CT\"}, \"labels\": {\"background\": 0, \"liver\": 1}}");
  if (!fs::exists(file)) return std::nullopt;
  const json description = parse(file);
  if (is_datalist(description) && !lists_unnumbered(description, folder)) return std::nullopt;
  Layout layout = start_layout(LayoutKind::kNnunet, "nnU-Net (imagesTr, labelsTr, dataset.json)");
  layout.data.root = folder.string();
  layout.channel_names = channel_names(description, file);
  read_labels(description, file, layout);
  const std::string suffix = only_suffix(images);
  const size_t channels = std::max<size_t>(1, layout.channel_names.size());
  for (size_t channel = 0; channel < channels; ++channel)
    layout.data.images.push_back("imagesTr/{id}" + channel_ending(channel) + suffix);
  VOX_CHECK(numbered || channels == 1, images.string(), ": no image is called ID_0000", suffix,
            ", though dataset.json names ", channels, " channels; nnU-Net numbers channels so");
  if (!numbered) layout.data.images = {"imagesTr/{id}" + suffix};
  if (numbered) require_named_channels(images, channels);
  layout.data.label = "labelsTr/{id}" + only_suffix(labels);
  layout.cases = find_cases(layout.data);
  require_all_used(images, layout.cases);
  require_all_used(labels, layout.cases);
  return layout;
}

std::optional<Layout> find_datalist(const fs::path& folder) {
  const std::optional<fs::path> file = datalist_in(folder);
  if (!file) return std::nullopt;
  const json list = parse(*file);
  Layout layout = start_layout(LayoutKind::kDatalist, "MONAI datalist (" + file->filename().string() + ")");
  layout.data.root = folder.string();
  layout.channel_names = channel_names(list, *file);
  read_labels(list, *file, layout);
  for (const json& item : list["training"]) layout.data.cases.push_back(entry_of(item, "", *file));
  VOX_CHECK(!list.contains("validation") || list["validation"].is_array(), file->string(),
            ": \"validation\" is no list of {image, label}; make it one, or take it out");
  if (list.contains("validation"))
    for (const json& item : list["validation"]) layout.data.cases.push_back(entry_of(item, "validation", *file));
  tell_apart(layout.data.cases);
  set_split(list, *file, layout);
  layout.cases = find_cases(layout.data);
  return layout;
}

}  // namespace vox
