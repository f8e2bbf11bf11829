#include "config/write.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>

#include "base/text.h"

namespace vox {
namespace {

struct ToTree {
  const Spec& spec;

  Tree operator()(const bool* value) const { return scalar_tree(*value ? "true" : "false"); }
  Tree operator()(const int64_t* value) const { return of(*value); }
  Tree operator()(const double* value) const { return of(*value); }
  Tree operator()(const std::string* value) const { return of(*value); }
  Tree operator()(const Extent3* value) const { return of(*value); }
  template <class T>
  Tree operator()(const std::vector<T>* values) const {
    std::vector<Tree> items;
    for (const T& value : *values) items.push_back(of(value));
    return list_tree(std::move(items));
  }
  Tree operator()(StructList* list) const {
    std::vector<Tree> items;
    for (size_t i = 0; i < list->size(); ++i) items.push_back(struct_tree(*list, i));
    return list_tree(std::move(items));
  }

 private:
  Tree of(int64_t value) const {
    const bool named = spec.named && spec.named->value == value;
    return scalar_tree(named ? spec.named->name : std::to_string(value));
  }
  Tree of(double value) const {
    const bool named = spec.named && static_cast<double>(spec.named->value) == value;
    return scalar_tree(named ? spec.named->name : shortest(value));
  }
  Tree of(const std::string& value) const { return scalar_tree(value); }
  Tree of(const Extent3& value) const {
    const bool same = value.z == value.y && value.y == value.x;
    if (same && spec.named && spec.named->value == value.z) return of(value.z);
    return list_tree({of(value.z), of(value.y), of(value.x)});
  }
  // Texts and lists that are empty, as they are by default, are left out: a term fits on its line.
  static Tree struct_tree(StructList& list, size_t index) {
    Writer writer;
    list.describe(index, writer);
    Tree item{.kind = Tree::Kind::kMap, .scalar = {}, .items = {}, .members = {}, .where = {}};
    for (const auto& [key, value] : writer.values())
      if (value != scalar_tree("") && value != list_tree({})) item.members.emplace_back(key, value);
    if (const Tree* params = list.params(index))
      item.members.insert(item.members.end(), params->members.begin(), params->members.end());
    return item;
  }
};

bool is_plain(const std::string& text) {
  constexpr std::array<const char*, 5> kNullWords{"", "~", "null", "Null", "NULL"};
  if (std::find(kNullWords.begin(), kNullWords.end(), text) != kNullWords.end()) return false;
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || (c && std::strchr("_./+-", c));
  };
  const bool marker = text.starts_with("--") || text == "-" || text.starts_with("...");
  return !marker && std::all_of(text.begin(), text.end(), plain);
}

std::string quoted(const std::string& text) {
  constexpr const char* kHex = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      out += std::string("\\") + c;
    else if (byte < 0x20 || byte == 0x7f)
      out += std::string("\\x") + kHex[byte >> 4] + kHex[byte & 15];
    else
      out += c;
  }
  return out + '"';
}

std::string scalar_text(const std::string& scalar) {
  std::string text;  // a literal ${ is doubled, because reading expands ${VAR}
  for (size_t i = 0; i < scalar.size(); ++i) {
    if (scalar.compare(i, 2, "${") == 0) text += '$';
    text += scalar[i];
  }
  return is_plain(text) ? text : quoted(text);
}

}  // namespace

std::string flow_text(const Tree& tree) {
  std::vector<std::string> parts;
  switch (tree.kind) {
    case Tree::Kind::kNull:
      return "~";
    case Tree::Kind::kScalar:
      return scalar_text(tree.scalar);
    case Tree::Kind::kList:
      for (const Tree& item : tree.items) parts.push_back(flow_text(item));
      return "[" + join(parts, ", ") + "]";
    case Tree::Kind::kMap:
      for (const auto& [key, value] : tree.members)
        parts.push_back((is_plain(key) ? key : quoted(key)) + ": " + flow_text(value));
      return "{" + join(parts, ", ") + "}";
  }
  return "";
}

namespace {

// Lists of structs stand one a line.
std::string option_text(const Tree& value, const std::string& indent) {
  if (value.kind != Tree::Kind::kList || value.items.empty() || value.items[0].kind != Tree::Kind::kMap)
    return " " + flow_text(value) + "\n";
  std::string text = "\n";
  for (const Tree& item : value.items) text += indent + "  - " + flow_text(item) + "\n";
  return text;
}

}  // namespace

Tree value_tree(const FieldRef& field, const Spec& spec) {
  return std::visit(ToTree{spec}, field);
}

void Writer::visit(const std::string& key, const FieldRef& field, const Spec& spec) {
  values_.emplace_back(key, value_tree(field, spec));
}

std::string yaml_text(const std::vector<std::pair<std::string, Tree>>& values) {
  std::string text;
  std::vector<std::string> open;  // sections that the last line stands in
  for (const auto& [key, value] : values) {
    std::vector<std::string> path = split(key, '.');
    const std::string name = path.back();
    path.pop_back();
    size_t common = 0;
    while (common < open.size() && common < path.size() && open[common] == path[common]) ++common;
    for (size_t depth = common; depth < path.size(); ++depth) text += std::string(2 * depth, ' ') + path[depth] + ":\n";
    open = path;
    const std::string indent(2 * path.size(), ' ');
    text += indent + name + ":" + option_text(value, indent);
  }
  return text;
}

}  // namespace vox
