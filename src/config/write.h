// Options back to values and text.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "config/visitor.h"

namespace vox {

Tree value_tree(const FieldRef& field, const Spec& spec);

class Writer final : public Visitor {  // collects every field as its dotted name and value, in order
 public:
  const std::vector<std::pair<std::string, Tree>>& values() const { return values_; }

 protected:
  void visit(const std::string& key, const FieldRef& field, const Spec& spec) override;

 private:
  std::vector<std::pair<std::string, Tree>> values_;
};

std::string flow_text(const Tree& tree);  // on one line, as YAML writes it

// Dotted names become nested sections.
std::string yaml_text(const std::vector<std::pair<std::string, Tree>>& values);

}  // namespace vox
