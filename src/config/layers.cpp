#include "config/layers.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "config/expand.h"
#include "config/overrides.h"
#include "config/read.h"
#include "config/schema.h"
#include "config/yaml.h"

namespace vox {
namespace {

constexpr const char* kExtends = "extends";

struct Document {
  Tree tree;
  std::string name;
  fs::path folder;
};

// Members of one map that share a name: the last stays. (Sections are merged by flatten instead.)
void drop_repeated(Tree& tree, const std::string& key, std::vector<std::string>& warnings) {
  for (Tree& item : tree.items) drop_repeated(item, key, warnings);
  std::vector<std::pair<std::string, Tree>> kept;
  for (auto& member : tree.members) {
    drop_repeated(member.second, key, warnings);
    const auto same = std::find_if(kept.begin(), kept.end(), [&](auto& other) { return other.first == member.first; });
    if (same == kept.end()) {
      kept.push_back(std::move(member));
      continue;
    }
    warnings.push_back(concat(key, ": `", member.first, "` is given twice (", same->second.where, " and ",
                              member.second.where, "); the last one holds"));
    same->second = std::move(member.second);
  }
  tree.members = std::move(kept);
}

void flatten(const Tree& map, const std::string& prefix, std::vector<Assignment>& out, const fs::path& folder) {
  for (const auto& [name, value] : map.members) {
    const std::string key = prefix + name;
    if (value.kind == Tree::Kind::kMap && !Schema::get().find(key))
      flatten(value, key + ".", out, folder);
    else if (value.kind != Tree::Kind::kNull || !Schema::get().is_section(key))
      out.push_back({key, value, folder});
  }
}

// One assignment per key, in the place of the last.
void keep_last(std::vector<Assignment>& assignments, std::vector<std::string>& warnings) {
  std::map<std::string, const Assignment*> last;
  for (const Assignment& assignment : assignments) {
    const Assignment*& seen = last[assignment.key];
    if (seen)
      warnings.push_back(concat(assignment.key, " is given twice (", seen->value.where, " and ", assignment.value.where,
                                "); the last one, ", tree_text(assignment.value), ", holds"));
    seen = &assignment;
  }
  std::vector<Assignment> kept;
  for (const Assignment& assignment : assignments)
    if (last[assignment.key] == &assignment) kept.push_back(assignment);
  assignments = std::move(kept);
}

std::vector<fs::path> extended_files(const Tree& tree, const fs::path& folder) {
  const std::string expected = ": expected the path of a recipe, or a list of them";
  std::vector<fs::path> files;
  for (const auto& [name, value] : tree.members) {
    if (name != kExtends) continue;
    files.clear();
    for (const Tree& item : value.kind == Tree::Kind::kList ? value.items : std::vector<Tree>{value}) {
      VOX_CHECK(item.kind == Tree::Kind::kScalar && !item.scalar.empty(), kExtends, " (", value.where, ")", expected);
      files.push_back((folder / expand_variables(item.scalar, kExtends, value.where)).lexically_normal());
    }
  }
  return files;
}

void add_document(Layers& layers, const Document& document, std::vector<fs::path>& open);

void add_file_once(Layers& layers, const fs::path& file, std::vector<fs::path>& open) {
  std::error_code ignored;
  VOX_CHECK(!fs::is_directory(file, ignored), file.string(), ": this is a folder, not a recipe; `voxloom init ",
            file.string(), " --output recipe.yaml` makes a recipe of a folder of data");
  VOX_CHECK(fs::exists(file, ignored), file.string(), ": no such recipe",
            open.empty() ? "" : concat("; ", open.back().string(), " extends it"));
  VOX_CHECK(
      fs::is_regular_file(file, ignored), file.string(),
      ": this is a pipe or a device, not a recipe; write the recipe to a file, whose folder its paths start from");
  const fs::path identity = fs::weakly_canonical(file);
  if (std::find(open.begin(), open.end(), identity) != open.end()) {
    std::vector<std::string> chain;
    for (const fs::path& path : open) chain.push_back(path.filename().string());
    throw Error(concat(file.string(), " extends itself: ", join(chain, " -> "), " -> ", file.filename().string()));
  }
  open.push_back(identity);
  const Tree tree = parse_yaml(read_file(file), {.name = file.string()});
  add_document(layers, {tree, file.string(), fs::absolute(file).parent_path()}, open);
  open.pop_back();
}

void add_document(Layers& layers, const Document& document, std::vector<fs::path>& open) {
  const Tree& tree = document.tree;
  VOX_CHECK(tree.kind == Tree::Kind::kMap || tree.kind == Tree::Kind::kNull, document.name,
            ": expected sections such as `data:`, got \"", printable(tree_text(tree)), "\"");
  for (const fs::path& file : extended_files(tree, document.folder)) add_file_once(layers, file, open);
  layers.extends = layers.extends || tree.find(kExtends);
  Layer layer{document.name, {}};
  flatten(tree, "", layer.assignments, document.folder);
  std::erase_if(layer.assignments, [](const Assignment& assignment) { return assignment.key == kExtends; });
  for (Assignment& assignment : layer.assignments) drop_repeated(assignment.value, assignment.key, layers.warnings);
  keep_last(layer.assignments, layers.warnings);
  layers.layers.push_back(std::move(layer));
}

// "a/b" of "a/b/*.tif" or "a/b/{id}.tif".
fs::path before_wildcards(const std::string& pattern) {
  const size_t wild = pattern.find_first_of("*?[{");
  return wild == std::string::npos ? fs::path(pattern) : fs::path(pattern.substr(0, wild)).parent_path();
}

// A path typed in a shell means the current folder where it is there, else it is one of the recipe's. Of several, the
// first decides.
fs::path folder_of_typed(const Tree& value, const fs::path& recipe_folder) {
  const bool list = value.kind == Tree::Kind::kList && !value.items.empty();
  const Tree& first = list ? value.items.front() : value;
  std::error_code ignored;
  const bool here = first.kind == Tree::Kind::kScalar &&
                    (fs::exists(first.scalar, ignored) || fs::exists(before_wildcards(first.scalar), ignored));
  return here ? fs::current_path() : recipe_folder;
}

}  // namespace

void add_file(Layers& layers, const fs::path& file) {
  std::vector<fs::path> open;
  add_file_once(layers, file, open);
}

void add_text(Layers& layers, const std::string& yaml, const fs::path& folder) {
  std::vector<fs::path> open;
  add_document(layers, {parse_yaml(yaml, {.name = "recipe"}), "recipe", fs::absolute(folder)}, open);
}

void add_overrides(Layers& layers, const std::vector<std::string>& overrides, const fs::path& folder) {
  Layer layer{"command line", {}};
  for (const std::string& text : overrides) {
    auto [key, value] = parse_override(text);
    const fs::path start = folder_of_typed(value, fs::absolute(folder));
    if (key != kExtends) {
      layer.assignments.push_back({key, std::move(value), start});
      continue;
    }
    Layers below;
    add_file(below, start / value.scalar);
    layers.layers.insert(layers.layers.begin(), below.layers.begin(), below.layers.end());
    layers.warnings.insert(layers.warnings.end(), below.warnings.begin(), below.warnings.end());
    layers.extends = true;
  }
  keep_last(layer.assignments, layers.warnings);
  layers.layers.push_back(std::move(layer));
}

}  // namespace vox
