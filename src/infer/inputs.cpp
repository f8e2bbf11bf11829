// What was named on the command line, as cases: their channels, their masks, and what they are called.
#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "infer/predict.h"
#include "io/format.h"
#include "volume/glob.h"

namespace vox {
namespace {

// `pattern` names a dataset of the file that `first` names: ":dataset". Else empty.
std::string dataset_within(const std::string& pattern, const std::string& first) {
  return pattern.starts_with(first + ":") ? pattern.substr(first.size()) : "";
}

// A folder that is no volume itself, but holds some: meant were these.
void require_one_case(const std::string& input) {
  const std::filesystem::path folder = input;
  if (!path_exists(folder) || !std::filesystem::is_directory(folder)) return;
  const bool is_volume = std::any_of(all_formats().begin(), all_formats().end(),
                                     [&](const FormatEntry& format) { return format.matches({}, folder); });
  if (is_volume) return;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    VOX_CHECK(!has_volume_suffix(entry.path()), input,
              " is a folder of volumes, and an input is one case; name them, as ", (folder / "*").string(),
              entry.path().filename().string().substr(volume_stem(entry.path()).size()));
}

// What {id} of the pattern's last part ("{id}_0000.nii.gz") is in the name of `file`; empty where the name is another.
std::string id_in(const std::filesystem::path& file, const std::string& pattern) {
  const std::string name = file.filename().string(), form = std::filesystem::path(pattern).filename().string();
  const size_t at = form.find("{id}");
  if (at == std::string::npos || form.find_first_of("*?:") != std::string::npos) return "";
  const std::string before = form.substr(0, at), after = form.substr(at + 4);
  const bool same = name.size() > before.size() + after.size() && name.starts_with(before) && ends_with(name, after);
  return same ? name.substr(before.size(), name.size() - before.size() - after.size()) : "";
}

// Of a further channel, where that of the first one is `folder`: the same, or, in a recipe with folders of their own
// (ct/{id}.nii, pet/{id}.nii), beside those at its end that have the recipe's names. Absent: nobody knows.
std::optional<std::filesystem::path> folder_beside(std::filesystem::path folder, std::filesystem::path first,
                                                   const std::filesystem::path& further) {
  if (first == further) return folder;
  for (; first.has_relative_path(); first = first.parent_path(), folder = folder.parent_path())
    if (first.filename() != folder.filename()) return std::nullopt;
  return folder / further;
}

// Further channels whose names differ as in the recipe: case_0001.nii.gz beside case_0000.nii.gz.
void add_beside(Case& one, const DataOptions& data) {
  const std::filesystem::path first = one.images.front(), first_form = data.images.front();
  for (size_t i = 1; i < data.images.size(); ++i) {
    const std::filesystem::path further = data.images[i];
    std::string form = further.filename().string();
    const size_t at = form.find("{id}");
    const auto folder = folder_beside(first.parent_path(), first_form.parent_path(), further.parent_path());
    if (at == std::string::npos || !folder) return;
    const std::filesystem::path beside = *folder / form.replace(at, 4, one.id);
    if (!path_exists(beside) || beside == first) return;
    one.images.push_back(beside.string());
  }
}

void add_from_same_file(Case& one, const DataOptions& data) {
  if (one.images.size() != 1 || data.images.empty()) return;
  const std::string input = one.images.front(), &first = data.images.front();
  for (size_t i = 1; i < data.images.size(); ++i)
    if (const std::string dataset = dataset_within(data.images[i], first); !dataset.empty())
      one.images.push_back(input + dataset);
  if (const std::string dataset = dataset_within(data.mask, first); !dataset.empty()) one.mask = input + dataset;
}

// Inputs of the same name that are datasets (`a.h5:raw/s0`) are called by these as well: a_raw_s0.
void tell_apart(std::vector<Case>& cases) {
  std::map<std::string, int64_t> named;
  for (const Case& one : cases) ++named[one.id];
  std::map<std::string, const Case*> known;
  for (Case& one : cases) {
    const std::string& input = one.images.front();
    std::string dataset = input.substr(file_of_volume(input).string().size());
    std::replace_if(dataset.begin(), dataset.end(), [](char c) { return c == ':' || c == '/'; }, '_');
    if (named[one.id] > 1) one.id += dataset;
    one.group = one.id;
    const auto [before, is_new] = known.emplace(one.id, &one);
    VOX_CHECK(is_new, "two inputs are called ", one.id, ": ", before->second->images.front(), " and ", input,
              "; predict them into two folders");
  }
}

}  // namespace

Dataset dataset_of_inputs(const std::vector<std::string>& inputs, const DataOptions& data) {
  Dataset dataset;
  for (const std::string& input : inputs) {
    require_one_case(input);
    Case one;
    one.images = path_exists(input) ? std::vector{input} : split(input, ',');
    const std::string id = data.images.empty() ? "" : id_in(one.images.front(), data.images.front());
    one.id = id.empty() ? volume_stem(file_of_volume(one.images.front())) : id;
    if (!id.empty() && one.images.size() == 1) add_beside(one, data);
    add_from_same_file(one, data);
    dataset.test.push_back(static_cast<int64_t>(dataset.cases.size()));
    dataset.cases.push_back(std::move(one));
  }
  tell_apart(dataset.cases);
  return dataset;
}

}  // namespace vox
