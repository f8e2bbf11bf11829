// Layouts without a description: a folder of images beside one of labels, or pairs of files in one folder.
#include <array>

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
  layout.data.images = {images + "/{id}" + only_suffix(folder / images)};
  layout.data.label = labels + "/{id}" + only_suffix(folder / labels);
  layout.cases = find_cases(layout.data);
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
