#include "config/yaml.h"

#include <yaml-cpp/yaml.h>

#include "base/error.h"

namespace vox {
namespace {

constexpr int kMaxDepth = 64;               // an anchor inside itself would never end
constexpr int64_t kMostValues = 1'000'000;  // lists of anchors of lists of anchors grow without bound

std::string place(const YamlSource& source, const YAML::Mark& mark) {
  return source.lines && mark.line >= 0 ? concat(source.name, ":", mark.line + 1) : source.name;
}

Tree convert(const YAML::Node& node, const YamlSource& source, int depth, int64_t* values) {
  VOX_CHECK(++*values <= kMostValues, source.name, ": it has more than ", kMostValues,
            " values; do its anchors repeat one another?");
  VOX_CHECK(depth < kMaxDepth, place(source, node.Mark()), ": nested deeper than ", kMaxDepth,
            " levels; does an anchor contain itself?");
  Tree tree;
  tree.where = place(source, node.Mark());
  if (node.IsScalar()) {
    tree.kind = Tree::Kind::kScalar;
    tree.scalar = node.Scalar();
  } else if (node.IsSequence()) {
    tree.kind = Tree::Kind::kList;
    for (const YAML::Node& item : node) tree.items.push_back(convert(item, source, depth + 1, values));
  } else if (node.IsMap()) {
    tree.kind = Tree::Kind::kMap;
    for (const auto& member : node) {
      VOX_CHECK(member.first.IsScalar(), place(source, member.first.Mark()), ": expected a name before the colon");
      Tree value = convert(member.second, source, depth + 1, values);
      value.where = place(source, member.first.Mark());  // where the key stands: a list below it starts later
      tree.members.emplace_back(member.first.Scalar(), std::move(value));
    }
  }
  return tree;
}

}  // namespace

Tree parse_yaml(const std::string& text, const YamlSource& source) {
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(text);
    VOX_CHECK(documents.size() <= 1, source.name, ": expected one YAML document, found ", documents.size());
    if (documents.empty()) return Tree{.kind = {}, .scalar = {}, .items = {}, .members = {}, .where = source.name};
    int64_t values = 0;
    return convert(documents[0], source, 0, &values);
  } catch (const YAML::Exception& error) {
    throw Error(concat(place(source, error.mark), ": not valid YAML: ", error.msg));
  }
}

}  // namespace vox
