#include "volume/glob.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "io/format.h"
#include "io/volume_name.h"

namespace vox {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kId = "{id}";

struct Captures {
  std::string id;
  std::vector<std::string> stars;
};

// Matches `text` against `pattern` from left to right, shortest star first. Recursive: names are short.
bool match_part(std::string_view pattern, std::string_view text, Captures& captures);

// `[a-c]` at the head of `pattern`: moves past it and says whether `letter` is in the set.
bool match_set(std::string_view& pattern, char letter) {
  const size_t close = pattern.find(']', 2);
  if (close == std::string_view::npos) return false;
  std::string_view set = pattern.substr(1, close - 1);
  pattern.remove_prefix(close + 1);
  const bool negated = set.front() == '!' || set.front() == '^';
  if (negated) set.remove_prefix(1);
  bool inside = false;
  for (size_t i = 0; i < set.size(); ++i) {
    const bool range = i + 2 < set.size() && set[i + 1] == '-';
    inside |= range ? letter >= set[i] && letter <= set[i + 2] : letter == set[i];
    if (range) i += 2;
  }
  return inside != negated;
}

bool match_any(std::string_view rest, std::string_view text, Captures& captures, bool names_case) {
  for (size_t length = 0; length <= text.size(); ++length) {
    Captures attempt = captures;
    if (names_case)
      attempt.id = std::string(text.substr(0, length));
    else
      attempt.stars.emplace_back(text.substr(0, length));
    if (names_case && length == 0) continue;
    if (!match_part(rest, text.substr(length), attempt)) continue;
    captures = attempt;
    return true;
  }
  return false;
}

bool match_part(std::string_view pattern, std::string_view text, Captures& captures) {
  while (!pattern.empty()) {
    if (pattern.starts_with(kId) && captures.id.empty())
      return match_any(pattern.substr(kId.size()), text, captures, true);
    if (pattern.starts_with(kId)) {  // named before: the same name again
      if (!text.starts_with(captures.id)) return false;
      text.remove_prefix(captures.id.size());
      pattern.remove_prefix(kId.size());
      continue;
    }
    if (pattern.front() == '*') return match_any(pattern.substr(1), text, captures, false);
    if (text.empty()) return false;
    if (pattern.front() == '[') {
      if (!match_set(pattern, text.front())) return false;
    } else {
      if (pattern.front() != '?' && pattern.front() != text.front()) return false;
      pattern.remove_prefix(1);
    }
    text.remove_prefix(1);
  }
  return text.empty();
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code problem;
  for (fs::directory_iterator it(folder, problem), end; !problem && it != end; it.increment(problem))
    entries.push_back(it->path());
  return entries;
}

std::string id_of(const Captures& captures, const fs::path& path) {
  if (!captures.id.empty()) return captures.id;
  const std::string stars = join(captures.stars, "_");
  if (stars.empty()) return volume_stem(path);
  return has_volume_suffix(stars) ? volume_stem(stars) : stars;  // "images/*" catches the suffix too
}

void walk(const fs::path& folder, const std::vector<std::string>& parts, size_t at, const Captures& captures,
          std::vector<FileMatch>& found) {
  if (at == parts.size()) {
    found.push_back({folder.string(), id_of(captures, folder)});
    return;
  }
  const std::string& part = parts[at];
  if (!is_pattern(part)) {
    if (fs::exists(folder / part)) walk(folder / part, parts, at + 1, captures, found);
    return;
  }
  if (part == "**") walk(folder, parts, at + 1, captures, found);
  for (const fs::path& entry : entries_of(folder)) {
    const std::string name = entry.filename().string();
    if (name.front() == '.' && part.front() != '.') continue;
    if (part == "**") {
      if (fs::is_directory(entry)) walk(entry, parts, at, captures, found);
      continue;
    }
    Captures attempt = captures;
    if (!match_part(part, name, attempt)) continue;
    if (at + 1 < parts.size() && !fs::is_directory(entry)) continue;
    walk(entry, parts, at + 1, attempt, found);
  }
}

std::vector<std::string> parts_of(const std::string& pattern) {
  std::vector<std::string> parts;
  for (const std::string& part : split(pattern, '/'))
    if (!part.empty() && part != ".") parts.push_back(part);
  return parts;
}

struct Search {
  fs::path folder;                 // named as it is, whatever its letters
  std::vector<std::string> parts;  // of the pattern, below it
};

Search search_of(const fs::path& root, const std::string& pattern) {
  const fs::path below = fs::path(pattern).lexically_normal();
  fs::path start = below.is_absolute() ? fs::path("/") : root;
  Search search;
  for (const std::string& part : parts_of(below.string())) {
    if (part == "..")  // at the head alone: others are resolved
      start /= part;
    else
      search.parts.push_back(part);
  }
  search.folder = start.is_absolute() ? "/" : ".";
  for (const std::string& part : parts_of(start.lexically_normal().string())) search.folder /= part;
  return search;
}

void sort_naturally(std::vector<FileMatch>& found) {
  std::sort(found.begin(), found.end(),
            [](const FileMatch& a, const FileMatch& b) { return natural_less(a.path, b.path); });
}

}  // namespace

bool is_pattern(const std::string& text) {
  return text.find_first_of("*?[") != std::string::npos || text.find(kId) != std::string::npos;
}

std::vector<FileMatch> match_files(const fs::path& root, const std::string& pattern) {
  std::vector<FileMatch> found;
  std::string file = pattern;
  while (true) {
    const Search search = search_of(root, file);
    walk(search.folder, search.parts, 0, {}, found);
    const size_t colon = file.rfind(':');
    if (!found.empty() || colon == std::string::npos || colon == 0) break;
    file.resize(colon);
  }
  sort_naturally(found);
  for (FileMatch& match : found) match.path += pattern.substr(file.size());
  return found;
}

std::vector<FileMatch> files_of_folder(const fs::path& folder) {
  std::vector<FileMatch> found;
  for (const fs::path& entry : entries_of(folder)) {
    if (entry.filename().string().front() == '.' || !has_volume_suffix(entry)) continue;
    found.push_back({entry.string(), volume_stem(entry)});
  }
  sort_naturally(found);
  return found;
}

fs::path fixed_folder(const fs::path& root, const std::string& pattern) {
  const auto [start, parts] = search_of(root, pattern);
  fs::path folder = start;
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    if (is_pattern(parts[i]) || parts[i].find('{') != std::string::npos) break;
    folder /= parts[i];
  }
  return folder.lexically_normal();
}

namespace {
std::string known_suffix(const std::string& name) {
  std::string longest;
  for (const FormatEntry& format : all_formats())
    for (const std::string& suffix : format.suffixes)
      if (ends_with(name, suffix) && suffix.size() > longest.size()) longest = suffix;
  return longest;
}

// Of a folder also where it is written as "pt_1/" or ".".
fs::path last_part(const fs::path& path) {
  const fs::path name = path.filename();
  if (path.empty() || (!name.empty() && name != "." && name != "..")) return name;
  const fs::path folder = fs::absolute(path).lexically_normal();
  return (folder.has_filename() ? folder : folder.parent_path()).filename();
}
}  // namespace

bool has_volume_suffix(const fs::path& path) {
  return !known_suffix(path.filename().string()).empty();
}

std::string volume_stem(const fs::path& path) {
  const fs::path last = last_part(path);
  const std::string name = last.string(), suffix = known_suffix(name);
  return suffix.empty() ? last.stem().string() : name.substr(0, name.size() - suffix.size());
}

fs::path file_of_volume(const std::string& name) {
  const std::optional<VolumeName> found = existing_volume(name);
  return found ? found->path : name.substr(0, name.find(':'));
}

bool volume_exists(const std::string& name) {
  return existing_volume(name).has_value();
}

}  // namespace vox
