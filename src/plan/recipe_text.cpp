#include "plan/recipe_text.h"

#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "base/text.h"

namespace vox {
namespace {

constexpr size_t kWidth = 118;

template <class T, class Text>
std::string flow(const std::vector<T>& values, Text&& text) {
  std::vector<std::string> parts;
  for (const T& value : values) parts.push_back(text(value));
  return "[" + join(parts, ", ") + "]";
}

}  // namespace

void RecipeText::remark(const std::string& sentence) {
  const std::string start = indent_ + "#";
  std::string row = start;
  for (const std::string& word : split(sentence, ' ')) {
    if (row.size() + 1 + word.size() > kWidth && row != start) {
      text_ += row + "\n";
      row = start;
    }
    row += " " + word;
  }
  text_ += row + "\n";
}

void RecipeText::section(const std::string& name) {
  indent_.clear();
  text_ += "\n" + name + ":\n";
  indent_ = "  ";
}

void RecipeText::line(const std::string& key, const std::string& value, const std::string& why) {
  if (!why.empty()) remark(why);
  text_ += indent_ + key + ":" + (value.empty() ? "" : " ") + value + "\n";
}

void RecipeText::item(const std::string& value, const std::string& why) {
  indent_ += "  ";
  if (!why.empty()) remark(why);
  text_ += indent_ + "- " + value + "\n";
  indent_.resize(indent_.size() - 2);
}

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);  // JSON is YAML
}

std::string yaml(const Extent3& extent) {
  return concat("[", extent.z, ", ", extent.y, ", ", extent.x, "]");
}

std::string yaml(const std::vector<Extent3>& extents) {
  return flow(extents, [](const Extent3& extent) { return yaml(extent); });
}

std::string yaml(const std::vector<int64_t>& values) {
  return flow(values, [](int64_t value) { return std::to_string(value); });
}

std::string yaml(const std::vector<double>& values) {
  return flow(values, [](double value) { return rounded(value, 7); });
}

std::string yaml(const std::vector<std::string>& texts) {
  return flow(texts, quoted);
}

std::string rounded(double value, int digits) {
  std::ostringstream out;
  out << std::setprecision(digits) << value;
  return out.str();
}

}  // namespace vox
