// Writes YAML whose every line has a reason above it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/shape.h"

namespace vox {

class RecipeText {
 public:
  void remark(const std::string& sentence);  // wrapped, at the current indentation
  void section(const std::string& name);
  // `key: value`, where value is YAML already; an empty reason repeats that of the line above.
  void line(const std::string& key, const std::string& value, const std::string& why = "");
  void item(const std::string& value, const std::string& why = "");  // of the list whose key was the last line

  const std::string& text() const { return text_; }

 private:
  std::string text_, indent_;
};

std::string quoted(const std::string& text);  // as YAML reads it back, whatever it holds
std::string yaml(const Extent3& extent);      // [40, 56, 40]
std::string yaml(const std::vector<Extent3>& extents);
std::string yaml(const std::vector<int64_t>& values);
std::string yaml(const std::vector<double>& values);  // seven digits of each
std::string yaml(const std::vector<std::string>& texts);
std::string rounded(double value, int digits);  // that many significant digits

}  // namespace vox
