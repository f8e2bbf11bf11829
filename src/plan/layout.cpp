#include "plan/layout.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "plan/layout_parts.h"
#include "volume/glob.h"
#include "volume/manifest.h"

namespace vox {
namespace {

bool hidden(const fs::path& path) {  // as the "._name" that some systems leave beside every file
  return path.filename().string().starts_with(".");
}

void set_folds(DataOptions& data, const std::vector<Case>& cases) {
  std::set<std::string> groups;
  for (const Case& item : cases) groups.insert(item.group);
  if (data.split != "kfold") return;
  if (groups.size() == 1) data.split = "none";
  data.folds = std::clamp<int64_t>(static_cast<int64_t>(groups.size()), 2, data.folds);
}

[[noreturn]] void fail_unknown(const fs::path& folder) {
  std::string example;
  for (const auto& entry : fs::directory_iterator(folder))
    if (!hidden(entry.path())) example = std::max(example, entry.path().filename().string());
  VOX_CHECK(!example.empty(), folder.string(),
            ": the folder is empty; expected a dataset, such as the folders images and labels");
  throw Error(concat(folder.string(),
                     ": this is no dataset that can be planned; expected imagesTr, labelsTr and "
                     "dataset.json (nnU-Net), a datalist .json (MONAI), train_images, train_labels and "
                     "train.csv (Vesuvius), train-pats/pt_N (OpenKBP), the folders images and labels, or "
                     "pairs ID_image, ID_label; it holds for example ",
                     example, about_json(folder)));
}

}  // namespace

Layout start_layout(LayoutKind kind, const std::string& title) {
  Layout layout;
  layout.kind = kind;
  layout.title = title;
  return layout;
}

std::vector<std::string> volumes_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    if (!hidden(entry.path()) && has_volume_suffix(entry.path())) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end(), [](const auto& a, const auto& b) { return natural_less(a, b); });
  return names;
}

std::string suffix_of(const std::string& name) {
  return name.substr(volume_stem(name).size());
}

std::string channel_ending(size_t channel) {
  const std::string number = std::to_string(channel);
  return "_" + std::string(4 - std::min<size_t>(4, number.size()), '0') + number;
}

std::string only_suffix(const fs::path& folder) {
  const std::vector<std::string> names = volumes_in(folder);
  VOX_CHECK(!names.empty(), folder.string(),
            ": there is no volume in this folder; `voxloom list formats` says what is "
            "read");
  for (const std::string& name : names)
    VOX_CHECK(suffix_of(name) == suffix_of(names.front()), folder.string(), ": volumes of two kinds, ", names.front(),
              " and ", name, "; bring them to one with `voxloom convert`");
  return suffix_of(names.front());
}

void require_all_used(const fs::path& folder, const std::vector<Case>& cases) {
  std::set<fs::path> used;
  for (const Case& item : cases) {
    for (const std::string& image : item.images) used.insert(fs::path(image).filename());
    used.insert(fs::path(item.label).filename());
  }
  for (const std::string& name : volumes_in(folder))
    VOX_CHECK(used.contains(name), (folder / name).string(),
              ": no case uses this file, its partner is missing (the image of a label, or the first channel); add the "
              "partner or take the file away");
}

Layout find_layout(const fs::path& given) {
  VOX_CHECK(fs::exists(given), given.string(), ": no such folder");
  VOX_CHECK(fs::is_directory(given), given.string(), ": this is a file; expected the folder of a dataset");
  fs::path folder = fs::absolute(given).lexically_normal();  // links stay: the recipe names what was named
  if (!folder.has_filename()) folder = folder.parent_path();
  for (const auto find : {find_openkbp, find_nnunet, find_datalist, find_vesuvius, find_folders, find_pairs}) {
    std::optional<Layout> layout = find(folder);
    if (!layout) continue;
    if (layout->data.root.empty()) layout->data.root = folder.string();
    if (layout->cases.empty()) layout->cases = find_cases(layout->data);
    set_folds(layout->data, layout->cases);
    return std::move(*layout);
  }
  fail_unknown(folder);
}

}  // namespace vox
