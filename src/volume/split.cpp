#include "volume/split.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/random.h"
#include "base/text.h"

namespace vox {
namespace {

constexpr std::array kSplitNames{"train", "validation", "test"};

// Train, validation or test from the words people use for them.
std::optional<Split> split_of_word(const std::string& word) {
  static const std::map<std::string, Split> words{
      {"train", Split::kTrain},      {"training", Split::kTrain},        {"val", Split::kValidation},
      {"valid", Split::kValidation}, {"validation", Split::kValidation}, {"dev", Split::kValidation},
      {"test", Split::kTest},        {"testing", Split::kTest}};
  const auto found = words.find(lower(word));
  return found == words.end() ? std::nullopt : std::optional(found->second);
}

Split parse_split(const std::string& text, const std::string& case_id) {
  const auto split = split_of_word(text);
  VOX_CHECK(split, "case ", case_id, ": its split is \"", text, "\"; expected train, validation or test");
  return *split;
}

using Assignment = std::vector<int>;  // per case a Split, or -1: in none

int number(Split split) {
  return static_cast<int>(split);
}

std::map<std::string, int64_t> index_by_id(const std::vector<Case>& cases) {
  std::map<std::string, int64_t> index;
  for (size_t i = 0; i < cases.size(); ++i) index[cases[i].id] = static_cast<int64_t>(i);
  return index;
}

void assign_listed(const Dataset& dataset, const std::vector<std::string>& ids, Split split, Assignment& assignment) {
  const auto index = index_by_id(dataset.cases);
  std::vector<std::string> known;
  for (const Case& item : dataset.cases) known.push_back(item.id);
  const char* option = kSplitNames[static_cast<size_t>(split)];
  for (const std::string& id : ids) {
    const auto found = index.find(id);
    const std::string close = found == index.end() ? nearest(id, known) : "";
    VOX_CHECK(found != index.end(), "data.", option, " names the case \"", id, "\", which is not in the dataset (",
              known.size(), " cases)", close.empty() ? "" : concat("; did you mean \"", close, "\"?"));
    int& place = assignment[static_cast<size_t>(found->second)];
    VOX_CHECK(place < 0 || place == number(split), "case ", id, " is listed in data.", option, " and in ",
              kSplitNames[static_cast<size_t>(place)], "; leave it in one of them");
    place = number(split);
  }
}

void assign_explicit(const Dataset& dataset, const DataOptions& data, Assignment& assignment) {
  assign_listed(dataset, data.train, Split::kTrain, assignment);
  assign_listed(dataset, data.validation, Split::kValidation, assignment);
  assign_listed(dataset, data.test, Split::kTest, assignment);
  if (!data.train.empty()) return;
  for (int& place : assignment)  // only the others are listed: the rest is for training
    if (place < 0) place = number(Split::kTrain);
}

void assign_kfold(const Dataset& dataset, const DataOptions& data, int64_t fold, uint64_t seed,
                  Assignment& assignment) {
  VOX_CHECK(fold >= 0 && fold < data.folds, "training.fold is ", fold, ", but data.folds is ", data.folds,
            "; folds count from 0 to ", data.folds - 1);
  std::vector<Case> drawn;
  for (size_t i = 0; i < assignment.size(); ++i)
    if (assignment[i] < 0) drawn.push_back(dataset.cases[i]);
  if (drawn.empty()) return;
  for (const Case& item : drawn)
    VOX_CHECK(item.fold < data.folds, "case ", item.id, ": its fold is ", item.fold, ", but data.folds is ", data.folds,
              "; folds count from 0 to ", data.folds - 1);
  const std::vector<int64_t> folds =
      assign_folds(drawn, data.folds, data.split_seed < 0 ? seed : static_cast<uint64_t>(data.split_seed));
  size_t next = 0;
  for (int& place : assignment)
    if (place < 0) place = number(folds[next++] == fold ? Split::kValidation : Split::kTrain);
  const auto has = [&](Split split) { return std::count(assignment.begin(), assignment.end(), number(split)) > 0; };
  std::set<std::string> groups;
  for (const Case& item : drawn) groups.insert(item.group);
  VOX_CHECK(has(Split::kTrain) && has(Split::kValidation), "fold ", fold, " of ", data.folds, " cannot be made from ",
            groups.size(), groups.size() == 1 ? " group" : " groups", " (", drawn.size(),
            " cases): a part of the split would be empty; lower data.folds, choose another training.fold, or set "
            "data.split: none to train on everything");
}

// Of the folders between data.root and the image, from the deepest up, the first whose name begins with a word for a
// split: "validation-pats", "train_images".
Split split_of_folder(const Case& item, const std::string& root) {
  const fs::path image = item.images.front();
  const fs::path below = root.empty() ? image : image.lexically_relative(fs::path(root).lexically_normal());
  for (fs::path folder = below.parent_path(); folder.has_filename(); folder = folder.parent_path()) {
    const std::string name = lower(folder.filename().string());
    const std::string word = name.substr(0, name.find_first_not_of("abcdefghijklmnopqrstuvwxyz"));
    if (const auto split = split_of_word(word)) return *split;
  }
  throw Error(concat("case ", item.id, ": data.split is folder, but no folder of ", image.string(),
                     " below data.root is called train..., validation... or test...; choose another data.split"));
}

void require_whole_groups(const Dataset& dataset, const Assignment& assignment) {
  std::map<std::string, size_t> first;
  for (size_t i = 0; i < assignment.size(); ++i) {
    if (assignment[i] < 0) continue;
    const auto [seen, added] = first.emplace(dataset.cases[i].group, i);
    const size_t other = seen->second;
    VOX_CHECK(assignment[other] == assignment[i], "the group \"", dataset.cases[i].group, "\" is in two splits: case ",
              dataset.cases[other].id, " in ", kSplitNames[static_cast<size_t>(assignment[other])], " and case ",
              dataset.cases[i].id, " in ", kSplitNames[static_cast<size_t>(assignment[i])],
              "; scores would be too good. Put the group in one split, or leave data.group_column out");
  }
}

}  // namespace

std::vector<int64_t> assign_folds(const std::vector<Case>& cases, int64_t folds, uint64_t seed) {
  struct Group {
    int64_t size;
    uint64_t order;
    std::string name;
  };
  std::vector<int64_t> filled(static_cast<size_t>(folds), 0);
  std::map<std::string, int64_t> sizes;
  for (const Case& item : cases) ++(item.fold < 0 ? sizes[item.group] : filled[static_cast<size_t>(item.fold)]);
  std::vector<Group> groups;
  for (const auto& [name, size] : sizes) {
    Random random(seed, ContentHash().add(name).value(), kSplitStream);
    const uint64_t high = random.bits(), low = random.bits();
    groups.push_back({size, (high << 32) | low, name});
  }
  std::sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) {
    return std::tie(b.size, a.order, a.name) < std::tie(a.size, b.order, b.name);
  });
  std::map<std::string, int64_t> fold_of;
  for (const Group& group : groups) {
    const auto emptiest = std::min_element(filled.begin(), filled.end());
    fold_of[group.name] = emptiest - filled.begin();
    *emptiest += group.size;
  }
  std::vector<int64_t> result;
  for (const Case& item : cases) result.push_back(item.fold < 0 ? fold_of[item.group] : item.fold);
  return result;
}

void split_cases(Dataset& dataset, const DataOptions& data, int64_t fold, uint64_t seed) {
  Assignment assignment(dataset.cases.size(), -1);
  for (size_t i = 0; i < assignment.size(); ++i) {
    const Case& item = dataset.cases[i];
    if (!item.split.empty()) assignment[i] = number(parse_split(item.split, item.id));
    VOX_CHECK(data.split != "column" || !item.split.empty(), "case ", item.id, ": the column ", data.split_column,
              " is empty; expected train, validation or test");
  }
  if (data.split == "kfold") assign_kfold(dataset, data, fold, seed, assignment);
  if (data.split == "explicit") assign_explicit(dataset, data, assignment);
  for (size_t i = 0; i < assignment.size() && data.split == "folder"; ++i)
    assignment[i] = number(split_of_folder(dataset.cases[i], data.root));
  if (data.split == "none") std::fill(assignment.begin(), assignment.end(), number(Split::kTrain));
  require_whole_groups(dataset, assignment);
  const std::array parts{&dataset.train, &dataset.validation, &dataset.test};
  for (auto* part : parts) part->clear();
  for (size_t i = 0; i < assignment.size(); ++i)
    if (assignment[i] >= 0) parts[static_cast<size_t>(assignment[i])]->push_back(static_cast<int64_t>(i));
}

}  // namespace vox
