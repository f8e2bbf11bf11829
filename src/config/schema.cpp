#include "config/schema.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "config/params.h"
#include "config/read.h"
#include "config/spec_text.h"
#include "config/write.h"

namespace vox {
namespace {

struct ShapeOf {
  Shape operator()(const std::string*) const { return Shape::kText; }
  Shape operator()(const std::vector<std::string>*) const { return Shape::kTextList; }
  Shape operator()(const StructList*) const { return Shape::kStructs; }
  Shape operator()(const Extent3*) const { return Shape::kList; }
  template <class T>
  Shape operator()(const std::vector<T>*) const {
    return Shape::kList;
  }
  template <class T>
  Shape operator()(const T*) const {
    return Shape::kScalar;
  }
};

class EntryCollector final : public Visitor {
 public:
  std::vector<OptionEntry> entries;

 protected:
  void visit(const std::string& key, const FieldRef& field, const Spec& spec) override {
    entries.push_back({key, std::visit(ShapeOf{}, field), spec});
  }
};

class RowCollector final : public Visitor {
 public:
  std::vector<OptionRow> rows;

 protected:
  void visit(const std::string& key, const FieldRef& field, const Spec& spec) override {
    rows.push_back(
        {key, type_text(field, spec), tree_text(value_tree(field, spec)), range_text(spec), spec.unit, spec.meaning});
    if (const auto* structs = std::get_if<StructList*>(&field)) describe_item(key, **structs);
  }

 private:
  void describe_item(const std::string& key, StructList& list) {
    if (list.size() == 0) list.reset(1);
    const std::string outer = std::exchange(prefix_, key + "[].");
    list.describe(0, *this);
    prefix_ = outer;
  }
};

std::string parent(const std::string& key) {
  const size_t dot = key.rfind('.');
  return dot == std::string::npos ? "" : key.substr(0, dot);
}
std::string last_name(const std::string& key) {
  return key.substr(key.rfind('.') + 1);
}
bool is_nested(const std::string& section) {
  return section.find('.') != std::string::npos;
}

}  // namespace

Schema::Schema() {
  Options defaults;
  EntryCollector collector;
  defaults.describe(collector);
  entries_ = std::move(collector.entries);
  for (const OptionEntry& entry : entries_)
    for (std::string section = parent(entry.key); !section.empty(); section = parent(section))
      if (!is_section(section)) sections_.push_back(section);
}

const Schema& Schema::get() {
  static const Schema schema;
  return schema;
}

const OptionEntry* Schema::find(const std::string& key) const {
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&](const auto& entry) { return entry.key == key; });
  return found == entries_.end() ? nullptr : &*found;
}

bool Schema::is_section(const std::string& key) const {
  return std::find(sections_.begin(), sections_.end(), key) != sections_.end();
}

std::string Schema::same_name_elsewhere(const std::string& name) const {
  for (const OptionEntry& entry : entries_)
    if (last_name(entry.key) == name && !is_nested(parent(entry.key))) return entry.key;
  return "";
}

std::string Schema::nearest_key(const std::string& key) const {
  const std::string section = parent(key), name = last_name(key);
  if (!section.empty() && !is_section(section))
    if (const std::string fixed = concat(nearest(section, sections_), ".", name); find(fixed)) return fixed;
  if (const std::string elsewhere = same_name_elsewhere(name); !elsewhere.empty() && !is_nested(section))
    return elsewhere;
  std::vector<std::string> siblings, everything = sections_;
  for (const OptionEntry& entry : entries_) everything.push_back(entry.key);
  for (const std::string& known : everything)
    if (parent(known) == section) siblings.push_back(last_name(known));
  if (const std::string near = nearest(name, siblings); !near.empty())
    return section.empty() ? near : concat(section, ".", near);
  return nearest(key, everything);
}

std::string Schema::suggestion(const std::string& key) const {
  const std::string near = nearest_key(key);
  return near.empty() ? "; `voxloom list options` shows every option" : concat("; did you mean \"", near, "\"?");
}

std::vector<OptionRow> described_rows(const Describe& describe) {
  RowCollector collector;
  describe(collector);
  return collector.rows;
}

std::vector<OptionRow> option_rows() {
  return rows_of<Options>();
}

}  // namespace vox
