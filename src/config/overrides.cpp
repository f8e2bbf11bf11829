#include "config/overrides.h"

#include "base/error.h"
#include "base/text.h"
#include "config/aliases.h"
#include "config/schema.h"
#include "config/yaml.h"

namespace vox {
namespace {

constexpr const char* kWhere = "command line";

bool enclosed(const std::string& text, char open, char close) {
  return text.size() >= 2 && text.front() == open && text.back() == close;
}

std::string unquoted(const std::string& text) {
  return enclosed(text, '"', '"') || enclosed(text, '\'', '\'') ? text.substr(1, text.size() - 2) : text;
}

// At commas outside brackets, braces and quotes.
std::vector<std::string> split_items(const std::string& text) {
  std::vector<std::string> items(1);
  int depth = 0;
  char quote = 0;
  for (const char c : text) {
    if (quote)
      quote = c == quote ? 0 : quote;
    else if (c == '"' || c == '\'')
      quote = c;
    else if (c == '[' || c == '{')
      ++depth;
    else if (c == ']' || c == '}')
      --depth;
    if (c == ',' && depth == 0 && !quote)
      items.emplace_back();
    else
      items.back() += c;
  }
  for (std::string& item : items) item = trim(item);
  return items;
}

// The first bracket closes at the end: [1,2],[3,4] is two items, and [ab]_[cd].tif a pattern.
bool is_bracketed(const std::string& text) {
  if (!enclosed(text, '[', ']')) return false;
  int depth = 0;
  for (size_t i = 0; i + 1 < text.size(); ++i) {
    depth += text[i] == '[' ? 1 : text[i] == ']' ? -1 : 0;
    if (depth == 0) return false;
  }
  return true;
}

// Texts keep brackets inside their items: {id}[0-9].tif is a pattern.
Tree parse_list(const std::string& text, Shape shape) {
  const std::string inner = is_bracketed(text) ? trim(text.substr(1, text.size() - 2)) : text;
  std::vector<Tree> items;
  if (inner.empty()) return list_tree({}, kWhere);
  for (const std::string& item : split_items(inner)) {
    const bool nested = shape == Shape::kList && enclosed(item, '[', ']');
    items.push_back(nested ? parse_list(item, shape) : scalar_tree(unquoted(item), kWhere));
  }
  return list_tree(std::move(items), kWhere);
}

// Groups in braces, or their names alone: dice,{name: bce, weight: 2} is [dice, {name: bce, weight: 2}].
Tree parse_groups(const std::string& text) {
  const YamlSource source{.name = kWhere, .lines = false};
  if (text.empty()) return list_tree({}, kWhere);
  const bool whole = text.front() == '[' || text.front() == '-' || text == "null" || text == "~";
  return parse_yaml(whole ? text : concat("[", text, "]"), source);
}

Tree parse_value(const std::string& text, Shape shape) {
  switch (shape) {
    case Shape::kStructs:
      return parse_groups(text);
    case Shape::kTextList:
      return parse_list(text, shape);
    case Shape::kList:
      if (!is_bracketed(text) && text.find(',') == std::string::npos && !text.empty()) break;  // a number, or auto
      return parse_list(text, shape);
    case Shape::kText:
    case Shape::kScalar:
      break;
  }
  return scalar_tree(unquoted(text), kWhere);
}

}  // namespace

std::pair<std::string, Tree> parse_override(const std::string& text) {
  const size_t equals = text.find('=');
  VOX_CHECK(equals != std::string::npos && equals > 0, "expected key=value on the command line, got \"", text, "\"");
  const std::string key = trim(text.substr(0, equals)), value = trim(text.substr(equals + 1));
  const Translation translation = translate(key, scalar_tree(value, kWhere));
  const OptionEntry* option = Schema::get().find(translation.key);
  try {
    return {key, parse_value(value, option ? option->shape : Shape::kText)};
  } catch (const Error& error) {
    throw with_context(key, error);
  }
}

}  // namespace vox
