// Shared by the files that recognise layouts.
#pragma once

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "plan/layout.h"

namespace vox {

Layout start_layout(LayoutKind kind, const std::string& title);

// Names of the volumes in `folder` in natural order, hidden files left out.
std::vector<std::string> volumes_in(const std::filesystem::path& folder);
// ".nii.gz": what follows the stem of a volume's name.
std::string suffix_of(const std::string& name);
// "_0001": what nnU-Net puts behind the id in the name of a case's channel.
std::string channel_ending(size_t channel);
// The one suffix of the volumes in `folder`. Error where there are none, or several.
std::string only_suffix(const std::filesystem::path& folder);
// Error that names a volume of `folder` that no case uses: its partner is missing, or its name is odd.
void require_all_used(const std::filesystem::path& folder, const std::vector<Case>& cases);

// What is wrong with the folder's JSON files, for a folder that none of them describes: " (x.json is no JSON)". Empty
// where there are none.
std::string about_json(const std::filesystem::path& folder);

// Each gives nothing where the folder is not its kind.
std::optional<Layout> find_openkbp(const std::filesystem::path& folder);
std::optional<Layout> find_nnunet(const std::filesystem::path& folder);
std::optional<Layout> find_datalist(const std::filesystem::path& folder);
std::optional<Layout> find_vesuvius(const std::filesystem::path& folder);
std::optional<Layout> find_folders(const std::filesystem::path& folder);
std::optional<Layout> find_pairs(const std::filesystem::path& folder);

}  // namespace vox
