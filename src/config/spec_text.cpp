#include "config/spec_text.h"

#include <cmath>

#include "base/error.h"
#include "base/text.h"

namespace vox {
namespace {

struct TypeName {
  const Spec& spec;
  std::string operator()(const bool*) const { return "true or false"; }
  std::string operator()(const int64_t*) const { return "whole number"; }
  std::string operator()(const double*) const { return "number"; }
  std::string operator()(const std::string*) const {
    if (spec.form == Form::kPath) return "path";
    if (spec.form == Form::kIterations) return "number, auto or duration";
    return spec.choices.empty() ? "text" : "choice";
  }
  std::string operator()(const Extent3*) const { return "z,y,x"; }
  std::string operator()(const std::vector<int64_t>*) const { return "list of whole numbers"; }
  std::string operator()(const std::vector<double>*) const {
    return spec.form == Form::kRange ? "low,high" : "list of numbers";
  }
  std::string operator()(const std::vector<std::string>*) const { return "list of texts"; }
  std::string operator()(const std::vector<Extent3>*) const { return "list of z,y,x"; }
  std::string operator()(const StructList*) const { return "list"; }
};

struct ExpectedName {
  const Spec& spec;
  std::string operator()(const bool*) const { return "true or false"; }
  std::string operator()(const int64_t*) const { return "a whole number"; }
  std::string operator()(const double*) const { return "a number"; }
  std::string operator()(const std::string*) const {
    if (spec.form == Form::kIterations)
      return "a whole number from 1 to 9e+09, auto, or a duration such as 6h, 90m or 30s";
    return spec.choices.empty() ? "a text" : "one of";
  }
  std::string operator()(const Extent3*) const { return "three whole numbers z,y,x (or one for all three)"; }
  std::string operator()(const std::vector<int64_t>*) const { return "a list of whole numbers"; }
  std::string operator()(const std::vector<double>*) const {
    return spec.form == Form::kRange ? "two ascending numbers low,high" : "a list of numbers";
  }
  std::string operator()(const std::vector<std::string>*) const { return "a list of texts"; }
  std::string operator()(const std::vector<Extent3>*) const { return "a list whose items are z,y,x or one number"; }
  std::string operator()(const StructList*) const { return "a list of groups such as [{name: ...}]"; }
};

std::string items_text(const Spec& spec) {
  if (spec.form == Form::kRange || (spec.min_items == 0 && spec.max_items == Spec{}.max_items)) return "";
  if (spec.min_items == spec.max_items) return concat(", exactly ", spec.min_items, " of them");
  if (spec.max_items == Spec{}.max_items) return concat(", at least ", spec.min_items);
  return concat(", ", spec.min_items, " to ", spec.max_items, " of them");
}

}  // namespace

std::string choices_text(const Spec& spec, const std::string& between) {
  std::vector<std::string> names;
  for (const std::string name : spec.choices) names.push_back(name.empty() ? "\"\"" : name);
  return join(names, between);
}

std::string type_text(const FieldRef& field, const Spec& spec) {
  const std::string type = std::visit(TypeName{spec}, field);
  return spec.named ? concat(type, " or ", spec.named->name) : type;
}

std::string range_text(const Spec& spec) {
  if (!spec.choices.empty()) return choices_text(spec, ", ");
  const bool low = std::isfinite(spec.min), high = std::isfinite(spec.max);
  if (low && high) return concat(spec.above_min ? "above " : "", shortest(spec.min), " to ", shortest(spec.max));
  if (low) return concat(spec.above_min ? "above " : "from ", shortest(spec.min));
  if (high) return concat("up to ", shortest(spec.max));
  return "";
}

std::string expectation(const FieldRef& field, const Spec& spec) {
  std::string text = std::visit(ExpectedName{spec}, field);
  const std::string range = range_text(spec);
  const bool from = spec.choices.empty() && std::isfinite(spec.min) && std::isfinite(spec.max) && !spec.above_min;
  if (!range.empty()) text += concat(" ", from ? "from " : "", range);
  text += items_text(spec);
  return spec.named ? concat(text, ", or ", spec.named->name) : text;
}

}  // namespace vox
