// Layouts without a description: a folder of images beside one of labels, or pairs of files in one folder.
#include <algorithm>
#include <array>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "plan/layout_parts.h"
#include "volume/glob.h"
#include "volume/manifest.h"

namespace vox {
namespace {

constexpr std::array kImageWords{"images", "image", "imagesTr", "train_images", "img", "imgs", "raw", "volumes"};
constexpr std::array kLabelWords{"labels", "label",        "labelsTr",      "train_labels", "masks",      "mask",
                                 "seg",    "segmentation", "segmentations", "gt",           "annotations"};
constexpr std::array kPairImageWords{"_image", "_img", "_raw", "-image", "-volume", "_im"};
constexpr std::array kPairLabelWords{"_label", "_seg", "_mask", "_gt", "-label", "-labels"};

template <size_t kCount>
std::string folder_called(const fs::path& folder, const std::array<const char*, kCount>& words) {
  for (const char* word : words)
    if (fs::is_directory(folder / word)) return word;
  return "";
}

template <size_t kCount>
std::string ending(const std::string& stem, const std::array<const char*, kCount>& words) {
  for (const std::string word : words)
    if (ends_with(stem, word) && stem.size() > word.size()) return stem.substr(stem.size() - word.size());
  return "";
}

// What follows the id in the names of two folders. Partners have the same name, or one of them an ending more (s1.tif
// and s1_mask.tif, s1_0000.nii.gz and s1.nii.gz), the same for most.
struct Endings {
  std::string image, label;
};

Endings endings_of(const std::vector<std::string>& images, const std::vector<std::string>& labels) {
  const auto stems_of = [](const std::vector<std::string>& names) {
    std::set<std::string> stems;
    for (const std::string& name : names) stems.insert(volume_stem(name));
    return stems;
  };
  const std::set<std::string> image_stems = stems_of(images), label_stems = stems_of(labels);
  const auto paired = [&](const Endings& endings) {
    size_t count = 0;
    for (const std::string& stem : image_stems)
      count += ends_with(stem, endings.image) &&
               label_stems.contains(stem.substr(0, stem.size() - endings.image.size()) + endings.label);
    return count;
  };
  Endings best;
  size_t most = paired(best);
  std::set<std::pair<std::string, std::string>> tried;
  const auto consider = [&](const Endings& endings) {
    if (!tried.emplace(endings.image, endings.label).second) return;
    if (const size_t count = paired(endings); count > most) most = count, best = endings;
  };
  for (const std::string& image : image_stems)
    for (const std::string& label : label_stems) {
      if (label.size() > image.size() && label.starts_with(image)) consider({"", label.substr(image.size())});
      if (image.size() > label.size() && image.starts_with(label)) consider({image.substr(label.size()), ""});
      if (most == image_stems.size()) return best;
    }
  return best;
}

// Of s1_0000.nii.gz, s1_0001.nii.gz ... every channel that any case has; each of them is then asked of all.
std::vector<std::string> image_endings(const std::string& first, const std::vector<std::string>& names) {
  std::vector<std::string> endings{first};
  const auto any_has = [&](const std::string& ending) {
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& name) { return ends_with(volume_stem(name), ending); });
  };
  while (first == channel_ending(0) && any_has(channel_ending(endings.size())))
    endings.push_back(channel_ending(endings.size()));
  return endings;
}

}  // namespace

std::optional<Layout> find_folders(const fs::path& folder) {
  const std::string images = folder_called(folder, kImageWords), labels = folder_called(folder, kLabelWords);
  if (images.empty() && labels.empty()) return std::nullopt;
  VOX_CHECK(!labels.empty(), folder.string(), ": there is a folder ", images, ", but none of labels (called ",
            kLabelWords[0], ", ", kLabelWords[4], " or the like)");
  VOX_CHECK(!images.empty(), folder.string(), ": there is a folder ", labels, ", but none of images (called ",
            kImageWords[0], ", ", kImageWords[6], " or the like)");
  Layout layout =
      start_layout(LayoutKind::kFolders, concat("folders of images (", images, ") and labels (", labels, ")"));
  layout.data.root = folder.string();
  const std::string image_suffix = only_suffix(folder / images), label_suffix = only_suffix(folder / labels);
  const std::vector<std::string> names = volumes_in(folder / images);
  const Endings endings = endings_of(names, volumes_in(folder / labels));
  for (const std::string& ending : image_endings(endings.image, names))
    layout.data.images.push_back(images + "/{id}" + ending + image_suffix);
  layout.data.label = labels + "/{id}" + endings.label + label_suffix;
  if (images == "train_images" && labels == "train_labels")
    layout.remarks.push_back(
        "There is no train.csv beside train_images. If these are scans of the Vesuvius challenge, copy it there and "
        "plan again: then what nobody labelled (2) is left out, and pieces of one scroll stay in one fold.");
  layout.cases = find_cases(layout.data);
  require_all_used(folder / images, layout.cases);
  require_all_used(folder / labels, layout.cases);
  return layout;
}

std::optional<Layout> find_pairs(const fs::path& folder) {
  std::string image, label;
  for (const std::string& name : volumes_in(folder)) {
    const std::string stem = volume_stem(name), suffix = suffix_of(name);
    if (image.empty() && !ending(stem, kPairImageWords).empty()) image = ending(stem, kPairImageWords) + suffix;
    if (label.empty() && !ending(stem, kPairLabelWords).empty()) label = ending(stem, kPairLabelWords) + suffix;
  }
  if (image.empty() || label.empty()) return std::nullopt;
  Layout layout = start_layout(LayoutKind::kPairs, concat("pairs of files (ID", image, ", ID", label, ")"));
  layout.data.root = folder.string();
  layout.data.images = {"{id}" + image};
  layout.data.label = "{id}" + label;
  layout.cases = find_cases(layout.data);
  require_all_used(folder, layout.cases);
  return layout;
}

}  // namespace vox
