// Fills described fields from a map. Errors name the option, the place, what was expected and what came.
#pragma once

#include <string>
#include <vector>

#include "config/visitor.h"

namespace vox {

class Reader final : public Visitor {
 public:
  // `values` maps option names, dotted inside sections, to values. `context` opens every message: "loss.terms[0]."
  explicit Reader(const Tree& values, std::string context = {});
  // Those members of the map that no field took.
  std::vector<std::pair<std::string, Tree>> unknown() const;
  void require_no_unknown() const;

 protected:
  void visit(const std::string& key, const FieldRef& field, const Spec& spec) override;

 private:
  const Tree& values_;
  std::string context_;
  std::vector<std::string> known_;
};

// A value in one line, as a message or a command line shows it: 32,64,128.
std::string tree_text(const Tree& tree);

}  // namespace vox
