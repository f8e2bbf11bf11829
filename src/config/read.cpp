#include "config/read.h"

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "base/text.h"
#include "config/iterations.h"
#include "config/numbers.h"
#include "config/params.h"
#include "config/spec_text.h"

namespace vox {
namespace {

std::string at(const Tree& value) {
  return value.where.empty() ? "" : concat(" (", value.where, ")");
}

std::string shown(const Tree& value) {
  switch (value.kind) {
    case Tree::Kind::kNull:
      return "nothing";
    case Tree::Kind::kScalar:
      return concat('"', value.scalar, '"');
    case Tree::Kind::kList:
      return concat("the list ", tree_text(value));
    case Tree::Kind::kMap:
      return concat("the group ", tree_text(value));
  }
  return "";
}

// Reads one field. Every operator() returns whether the value was of the right kind and in range; the caller then says
// what was expected, in one place.
class FieldReader {
 public:
  FieldReader(const Tree& value, const Spec& spec, const std::string& key) : value_(value), spec_(spec), key_(key) {}

  bool operator()(bool* out) const { return store(out, value_, read_bool); }
  bool operator()(int64_t* out) const { return read_item(value_, *out); }
  bool operator()(double* out) const { return read_item(value_, *out); }
  bool operator()(std::string* out) const { return read_item(value_, *out); }
  bool operator()(Extent3* out) const { return read_item(value_, *out); }
  template <class T>
  bool operator()(std::vector<T>* out) const;
  bool operator()(StructList* out) const;

 private:
  template <class T>
  static bool store(T* out, const Tree& value, std::optional<T> (*read)(const std::string&)) {
    const auto result = value.kind == Tree::Kind::kScalar ? read(value.scalar) : std::nullopt;
    if (result) *out = *result;
    return result.has_value();
  }
  bool in_range(double number) const {
    return number <= spec_.max && (spec_.above_min ? number > spec_.min : number >= spec_.min);
  }
  bool is_named(const Tree& value) const {
    if (!spec_.named) return false;
    return value.kind == Tree::Kind::kNull || (value.kind == Tree::Kind::kScalar && value.scalar == spec_.named->name);
  }
  bool read_item(const Tree& value, int64_t& out) const;
  bool read_item(const Tree& value, double& out) const;
  bool read_item(const Tree& value, std::string& out) const;
  bool read_item(const Tree& value, Extent3& out) const;
  void read_struct(StructList& list, size_t index, const Tree& item) const;

  const Tree& value_;
  const Spec& spec_;
  const std::string& key_;
};

bool FieldReader::read_item(const Tree& value, int64_t& out) const {
  if (is_named(value)) {
    out = spec_.named->value;
    return true;
  }
  if (!store(&out, value, read_integer)) return false;
  return in_range(static_cast<double>(out)) || (spec_.named && out == spec_.named->value);
}

bool FieldReader::read_item(const Tree& value, double& out) const {
  if (is_named(value)) {
    out = static_cast<double>(spec_.named->value);
    return true;
  }
  return store(&out, value, read_number) && in_range(out);
}

bool FieldReader::read_item(const Tree& value, std::string& out) const {
  if (value.kind != Tree::Kind::kScalar && value.kind != Tree::Kind::kNull) return false;
  out = value.scalar;
  if (spec_.form == Form::kIterations) return read_iterations(out).has_value();
  return spec_.choices.empty() || std::find(spec_.choices.begin(), spec_.choices.end(), out) != spec_.choices.end();
}

bool FieldReader::read_item(const Tree& value, Extent3& out) const {
  if (value.kind != Tree::Kind::kList) {
    int64_t side = 0;
    if (!read_item(value, side)) return false;
    out = {side, side, side};
    return true;
  }
  if (value.items.size() != 3) return false;
  for (int axis = 0; axis < 3; ++axis)
    if (!read_item(value.items[static_cast<size_t>(axis)], out[axis])) return false;
  return true;
}

template <class T>
bool FieldReader::operator()(std::vector<T>* out) const {
  const std::vector<Tree> one{value_}, none;
  const bool is_list = value_.kind == Tree::Kind::kList;
  const std::vector<Tree>& items = is_list ? value_.items : value_.kind == Tree::Kind::kNull ? none : one;
  if (items.size() < spec_.min_items || items.size() > spec_.max_items) return false;
  out->assign(items.size(), T{});
  for (size_t i = 0; i < items.size(); ++i)
    if (!read_item(items[i], (*out)[i])) return false;
  if constexpr (std::is_same_v<T, double>)
    if (spec_.form == Form::kRange) return out->size() == 2 && out->front() <= out->back();
  return true;
}

bool FieldReader::operator()(StructList* out) const {
  if (value_.kind != Tree::Kind::kList && value_.kind != Tree::Kind::kNull) return false;
  out->reset(value_.items.size());
  for (size_t i = 0; i < value_.items.size(); ++i) read_struct(*out, i, value_.items[i]);
  return true;
}

void FieldReader::read_struct(StructList& list, size_t index, const Tree& item) const {
  const std::string context = concat(key_, "[", index, "]");
  Tree members = item;
  if (item.kind == Tree::Kind::kScalar && list.params(index)) {  // a bare name: [dice, bce]
    members = Tree{.kind = Tree::Kind::kMap, .scalar = {}, .items = {}, .members = {}, .where = item.where};
    members.members.emplace_back("name", item);
  }
  VOX_CHECK(members.kind == Tree::Kind::kMap, context, at(item), ": expected a group such as {name: ...}, got ",
            shown(item));
  Reader reader(members, context + ".");
  list.describe(index, reader);
  Tree* params = list.params(index);
  if (!params) return reader.require_no_unknown();
  const Tree* name = members.find("name");
  VOX_CHECK(name && !name->scalar.empty(), context, at(members), ": expected a `name`, got ", shown(members));
  *params =
      Tree{.kind = Tree::Kind::kMap, .scalar = {}, .items = {}, .members = reader.unknown(), .where = members.where};
}

std::string hint(const Tree& value, const Spec& spec) {
  if (value.kind != Tree::Kind::kScalar || spec.choices.empty()) return "";
  const std::string near = nearest(value.scalar, {spec.choices.begin(), spec.choices.end()});
  return near.empty() ? "" : concat("; did you mean \"", near, "\"?");
}

}  // namespace

Reader::Reader(const Tree& values, std::string context) : values_(values), context_(std::move(context)) {}

void Reader::visit(const std::string& key, const FieldRef& field, const Spec& spec) {
  known_.push_back(key);
  const Tree* value = values_.find(key);
  if (!value) return;
  const std::string name = context_ + key;
  if (std::visit(FieldReader(*value, spec, name), field)) return;
  throw Error(
      concat(name, at(*value), ": expected ", expectation(field, spec), ", got ", shown(*value), hint(*value, spec)));
}

std::vector<std::pair<std::string, Tree>> Reader::unknown() const {
  std::vector<std::pair<std::string, Tree>> rest;
  for (const auto& member : values_.members)
    if (std::find(known_.begin(), known_.end(), member.first) == known_.end()) rest.push_back(member);
  return rest;
}

void Reader::require_no_unknown() const {
  for (const auto& [key, value] : unknown()) {
    const std::string near = nearest(key, known_);
    throw Error(concat(context_, key, at(value), ": unknown option",
                       near.empty() ? concat("; known: ", known_.empty() ? "none" : join(known_, ", "))
                                    : concat("; did you mean \"", near, "\"?")));
  }
}

void read_described(const Describe& describe, const Tree& params, const std::string& where) {
  VOX_CHECK(params.kind == Tree::Kind::kMap || params.kind == Tree::Kind::kNull, where, at(params),
            ": expected a group of options, got ", shown(params));
  Reader reader(params, where + ": ");
  describe(reader);
  reader.require_no_unknown();
}

std::string tree_text(const Tree& tree) {
  std::vector<std::string> parts;
  switch (tree.kind) {
    case Tree::Kind::kNull:
      return "";
    case Tree::Kind::kScalar:
      return tree.scalar;
    case Tree::Kind::kList:
      for (const Tree& item : tree.items) {
        const bool nested = item.kind == Tree::Kind::kList;
        parts.push_back(nested ? concat("[", tree_text(item), "]") : tree_text(item));
      }
      return tree.items.empty() ? "[]" : join(parts, ",");
    case Tree::Kind::kMap:
      for (const auto& [key, value] : tree.members) {
        const bool list = value.kind == Tree::Kind::kList && !value.items.empty();
        parts.push_back(concat(key, ": ", list ? "[" : "", tree_text(value), list ? "]" : ""));
      }
      return concat("{", join(parts, ", "), "}");
  }
  return "";
}

}  // namespace vox
