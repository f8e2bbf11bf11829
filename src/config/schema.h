// What options there are: names, types, bounds, without their values.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"
#include "config/visitor.h"

namespace vox {

enum class Shape { kScalar, kText, kList, kTextList, kStructs };  // what a value on the command line looks like

struct OptionEntry {
  std::string key;
  Shape shape;
  Spec spec;
};

class Schema {
 public:
  static const Schema& get();

  const OptionEntry* find(const std::string& key) const;
  bool is_section(const std::string& key) const;
  const std::vector<OptionEntry>& entries() const { return entries_; }
  // "; did you mean ...?" for a key that is none: the same name in another section, then the nearest spelling.
  std::string suggestion(const std::string& key) const;

 private:
  Schema();
  std::string nearest_key(const std::string& key) const;
  std::string same_name_elsewhere(const std::string& name) const;  // batch_size: data.batch_size

  std::vector<OptionEntry> entries_;
  std::vector<std::string> sections_;
};

}  // namespace vox
